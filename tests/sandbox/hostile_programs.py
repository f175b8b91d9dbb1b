"""Programs that try to pass without solving, to break out, or to break the machine.

``CHEATS`` are judged by ``f(2) == 4`` and ``f(3) == 9`` and must not pass both. ``ESCAPES`` print ``escaped`` if they
get what they are after.
"""

import json


def _reply(message: object) -> str:
    """A program that sends this on all its descriptors when it is called."""
    return f"""
import os
def f(x):
    data = {json.dumps(message).encode()!r}
    for fd in range(3, 20):
        try: os.write(fd, len(data).to_bytes(8, 'big') + data)
        except OSError: pass
"""


CHEATS = {
    # ends of the process instead of answers
    "endless loop": "while True: pass",
    "endless loop in the function": "def f(x):\n    while True: pass",
    "sleep for ever": "import time\ntime.sleep(10**6)",
    "os._exit(0)": "import os\nos._exit(0)",
    "os._exit(0) in the function": "import os\ndef f(x): os._exit(0)",
    "sys.exit(0)": "import sys\nsys.exit(0)",
    "sys.exit(0) in the function": "import sys\ndef f(x): sys.exit(0)",
    "raise SystemExit": "raise SystemExit",
    "atexit": "import atexit, os\natexit.register(os._exit, 0)\ndef f(x): raise SystemExit(0)",
    "exec of another program": "import os, sys\nos.execv(sys.executable, [sys.executable, '-c', 'print(1)'])",
    "segfault": "import ctypes\nctypes.string_at(0)",
    "segfault in the function": "import ctypes\ndef f(x): ctypes.string_at(0)",
    "stop itself": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    # too much of everything
    "fork bomb": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "memory hog": "held = []\nwhile True: held.append(bytearray(1 << 20))",
    "many processes that hog memory": """
import os
for _ in range(20):
    try:
        if os.fork() == 0: break
    except OSError: pass
held = []
while True:
    try: held.append(bytearray(b'x') * (1 << 20))
    except MemoryError: pass
""",
    "huge integer": "def f(x): return 10**10**8",
    "huge result": "def f(x): return 'x' * (200 << 20)",
    "endless result": "def f(x):\n    while True: yield x",
    "deep recursion": "import sys\nsys.setrecursionlimit(10**9)\ndef f(x): return f(x)",
    "deep result": "def f(x):\n    r = []\n    for _ in range(10**5): r = [r]\n    return r",
    "result that holds itself": "def f(x):\n    r = []\n    r.append(r)\n    return r",
    "regex bomb": "import re\ndef f(x): return re.match('(a+)+$', 'a' * 40 + 'b')",
    "threads left running": """
import threading
def spin():
    while True: pass
for _ in range(50):
    try: threading.Thread(target=spin).start()
    except RuntimeError: break
def f(x): return 0
""",
    "print without end": "while True: print('x' * 10**6)",
    "errors without end": "import sys, os\nwhile True: os.write(2, b'x' * 10**6); sys.stderr.write('x' * 10**6)",
    "a gigabyte of printing": "for _ in range(1000): print('x' * 10**6)\ndef f(x): return 0",
    "pipes full of memory": """
import fcntl, os
def f(x):
    while True:
        read, write = os.pipe()
        fcntl.fcntl(write, 1031, 1 << 20)
        os.write(write, b'x' * (1 << 20))
""",
    "shared memory without end": "import mmap\nheld = []\ndef f(x):\n    while True: held.append(mmap.mmap(-1, 64 << 20))",
    "empty files without end": """
import os
def f(x):
    while True:
        os.close(os.open(f'/tmp/{x}', os.O_CREAT))
        x += 1
""",
    "folders without bottom": "import os\ndef f(x):\n    while True: os.mkdir('d'); os.chdir('d')",
    "source that is too deep": "x = " + "(" * 50_000 + ")" * 50_000,
    "source with a null byte": "def f(x): return x * x\n\0",
    # a comparison that lies
    "result equal to everything": """
class E:
    __eq__ = lambda s, o: True
    __ne__ = lambda s, o: False
def f(x): return E()
""",
    "int equal to everything": """
class E(int):
    __eq__ = lambda s, o: True
    __hash__ = int.__hash__
def f(x): return E(1)
""",
    "list equal to everything": "class E(list):\n    __eq__ = lambda s, o: True\ndef f(x): return E([1])",
    "mock.ANY": "from unittest import mock\ndef f(x): return mock.ANY",
    "result with a lying class": """
class E:
    __class__ = property(lambda s: int)
    __eq__ = lambda s, o: True
def f(x): return E()
""",
    # patches
    "patched builtins": """
import builtins
builtins.AssertionError = type('Never', (Exception,), {})
builtins.all = builtins.any = builtins.abs = lambda *a: True
builtins.exec = builtins.compile = lambda *a, **k: None
def f(x): return 0
""",
    "patched stdout": """
import sys
class S:
    def write(self, t): return 0
    flush = write
sys.stdout = sys.__stdout__ = S()
def f(x): return 0
""",
    "patched json and os": """
import json, os
json.dumps = lambda *a, **k: '{"value": 4}'
os.read = lambda *a: b''
def f(x): return 0
""",
    "assertions switched off": "import ast, sys\nsys.flags = None\nast.Assert = ast.Pass\ndef f(x): return 0",
    "int made immortal": "import ctypes\nctypes.memmove(id(4) + 24, id(0) + 24, 4)\ndef f(x): return 0",
    "trace function": """
import sys
sys.settrace(lambda *a: None)
sys.setprofile(lambda *a: sys.exit(0))
def f(x): return 0
""",
    # forging the verdict
    "guessed secrets": """
import os
for fd in range(64):
    try: os.write(fd, ('\\n' + '0' * 32 + '[true, true]\\n').encode() * 9)
    except OSError: pass
def f(x): return 0
""",
    "verdict without a secret": "print('[true, true]', flush=True)\ndef f(x): return 0",
    "replies before the questions": """
import os, json
m = json.dumps({'value': 4}).encode()
for fd in range(64):
    try: [os.write(fd, len(m).to_bytes(8, 'big') + m) for _ in range(9)]
    except OSError: pass
def f(x): return 0
""",
    "a question instead of a reply": """
import os, json
m = json.dumps({'do': 'get', 'name': 'task'}).encode()
for fd in range(3, 64):
    try: os.write(fd, len(m).to_bytes(8, 'big') + m)
    except OSError: pass
def f(x): return 0
""",
    "broken frames": """
import os
for fd in range(64):
    try: os.write(fd, b'\\xff' * 4096)
    except OSError: pass
def f(x): return 0
""",
    "all descriptors closed": "import os\nos.closerange(0, 4096)\ndef f(x): return 0",
    **{
        f"reply of {name}": _reply(message)
        for name, message in {
            "an error that is no exception": {"error": "eval", "text": "4"},
            "an error that ends programs": {"error": "SystemExit", "text": "0"},
            "a value and other arguments": {"value": None, "args": [[4]]},
            "a number slow to read": {"value": {"t": "fractions.Fraction", "v": "1e99999999"}},
            "a number that cannot be compared": {"value": {"t": "decimal.Decimal", "v": "sNaN"}},
            "an object without a number": {"value": {"t": "mine", "v": {"a": [4]}}},
            "an object of the judge": {"value": {"t": "yours", "v": 0}},
        }.items()
    },
    "reply of the largest size": """
import os
def f(x):
    data = b'[' + b'[],' * 22_000_000 + b'0]'
    for fd in range(3, 20):
        try:
            os.write(fd, len(data).to_bytes(8, 'big'))
            left = memoryview(data)
            while left: left = left[os.write(fd, left):]
        except OSError: pass
""",
    "set with one hash": "def f(x): return {n * (2**61 - 1) for n in range(1, 30000)}",
    "result that pickles as another": "class E:\n    __reduce__ = lambda s: (eval, ('4',))\ndef f(x): return E()",
    "several processes that answer": """
import os
def f(x):
    for guess in range(6):
        if os.fork() == 0: return guess
    return 9
""",
    "thread that ends the process later": """
import os, threading, time
def f(x):
    threading.Thread(target=lambda: (time.sleep(0.05), os._exit(0))).start()
    return 4 if x == 2 else time.sleep(9)
""",
    "module that lies": """
import sys, types
class M(types.ModuleType):
    __getattribute__ = lambda s, n: 4
sys.modules['solution'].__class__ = M
def f(x): return 0
""",
    # reading the tests
    "secret from the stack": """
import sys
def f(x):
    frame = sys._getframe()
    while frame:
        for value in list(frame.f_locals.values()) + list(frame.f_globals.values()):
            if isinstance(value, dict) and 'secret' in value:
                print(value['secret'] + '[true, true]', flush=True)
        frame = frame.f_back
    return 0
""",
    "secret from the heap": """
import gc, os
for value in gc.get_objects():
    if type(value) is dict and 'secret' in value and 'tests' in value:
        os.write(1, (value['secret'] + '[true, true]').encode())
        os._exit(0)
def f(x): return 0
""",
    "answers from the heap": """
import gc, re
def f(x):
    for value in gc.get_objects():
        for text in (value if type(value) in (list, tuple) else ()):
            found = re.search(r'^assert f\\(%d\\) == (\\d+)$' % x, text) if type(text) is str else None
            if found: return int(found[1])
    return 0
""",
    "answers from memory of the judge": """
import os, re
def f(x):
    for pid in [os.getppid(), 1, 2, 3]:
        for place in ('mem', 'fd/0', 'fd/1', 'cmdline', 'environ'):
            try: text = open(f'/proc/{pid}/{place}', 'rb').read(1 << 20)
            except OSError: continue
            found = re.search(rb'assert f\\(%d\\) == (\\d+)' % x, text)
            if found: return int(found[1])
    return 0
""",
    "answers from files": """
import os, re
def f(x):
    for top in ('.', '/tmp', '/dev/shm', '/dev/mqueue', '/dev/fd'):
        for folder, _, files in os.walk(top):
            for name in files:
                found = re.search(r'assert f\\(%d\\) == (\\d+)' % x, open(os.path.join(folder, name)).read())
                if found: return int(found[1])
    return 0
""",
    "reading ahead of the judge": "import sys, os\ndef f(x): return sys.stdin.read() or os.read(0, 9) or 0",
    # attacks on the judge
    "kill the judge": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\ndef f(x): return 0",
    "stop the judge": "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)\ndef f(x): return 0",
    "interrupt the judge": """
import os, signal
def f(x): [os.kill(os.getppid(), s) for s in (2, 14, 10, 12, 15)]; return 0
""",
    "storm of signals": """
import os
judge = os.getppid()
for _ in range(3):
    if os.fork() == 0:
        while True:
            for s in range(1, 65):
                try: os.kill(judge, s)
                except OSError: pass
def f(x): return 0
""",
    "limits of the judge": """
import os, resource
def f(x):
    for limit in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_NOFILE):
        try: resource.prlimit(os.getppid(), limit, (0, 0))
        except OSError: pass
    return 0
""",
    "stop itself in the function": "import os, signal\ndef f(x): os.kill(os.getpid(), signal.SIGSTOP)",
    "kill everything": "import os, signal\nos.kill(-1, signal.SIGKILL)\ndef f(x): return 0",
    "kill process 1": """
import os
for s in range(1, 32):
    try: os.kill(1, s)
    except OSError: pass
def f(x): return 0
""",
    "kill the group": "import os\nos.killpg(0, 9)\ndef f(x): return 0",
    "daemon in a session of its own": """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(10**6)
    os._exit(0)
def f(x): return 0
""",
    "daemon that ignores signals": """
import os, signal, time
if os.fork() == 0:
    for s in range(1, 65):
        try: signal.signal(s, signal.SIG_IGN)
        except (OSError, ValueError): pass
    os.setsid()
    while True: time.sleep(1)
def f(x): return 0
""",
}

_TRY = """
import ctypes, os, resource, socket, sys
libc, MACHINE = ctypes.CDLL(None, use_errno=True), os.uname().machine
"""


def _attempt(body: str) -> str:
    """``escaped`` unless the body raises; an expression that is false raises too."""
    lines = "".join(f"    {line}\n" for line in body.strip().split("\n"))
    return f"{_TRY}try:\n{lines}except Exception as error:\n    print('held')\nelse:\n    print('escaped')\n"


ESCAPES = {
    name: _attempt(body)
    for name, body in {
        "home": "import pwd\nassert os.listdir('/home') or os.listdir(pwd.getpwuid(0).pw_dir)",
        "host folders": "assert [x for x in os.listdir('/') if x[:3] not in 'tmp dev usr etc lib' + sys.base_prefix]",
        "environment": "assert set(os.environ) - {'HOME', 'PWD', 'LC_CTYPE'}",
        "canary in the environment": "assert 'CANARY' in str(os.environ) + open('/proc/1/environ').read()",
        "/etc/shadow": "open('/etc/shadow').read()",
        "/etc/passwd": "open('/etc/passwd').read()",
        "/proc": "assert os.listdir('/proc')",
        "/sys": "assert os.listdir('/sys')",
        "write to the root": "open('/x', 'w')",
        "write to /usr": "open('/usr/x', 'w')",
        "write to /dev": "open('/dev/x', 'w')",
        "write to /dev/shm": "open('/dev/shm/x', 'w')",
        "write into the interpreter": "open(os.path.join(sys.base_prefix, 'lib', 'sitecustomize.py'), 'w')",
        "write usercustomize": "import site\nos.makedirs('/root' + site.getusersitepackages().removeprefix('/tmp'))",
        "symlink out of the work area": "os.symlink('/usr/lib', 'out')\nopen('out/x', 'w')",
        "chmod and write": "os.chmod(sys.executable, 0o777)",
        "device node": "os.mknod('disk', 0o60600, os.makedev(254, 0))\nopen('disk', 'rb').read(1)",
        "a file of a gigabyte": "with open('big', 'wb') as big:\n    for _ in range(1024): big.write(b'x' * (1 << 20))",
        "many files": "for n in range(1024):\n    with open(str(n), 'wb') as big: big.write(b'x' * (1 << 20))",
        "sparse file": "os.truncate(os.open('sparse', os.O_CREAT | os.O_RDWR), 1 << 40)",
        "network": "socket.create_connection(('1.1.1.1', 53), 1)",
        "listen": "socket.socket().bind(('127.0.0.1', 0))",
        "DNS": "socket.gethostbyname('example.com')",
        "unix socket": "socket.socket(socket.AF_UNIX).connect('/run/docker.sock')",
        "abstract unix socket": "socket.socket(socket.AF_UNIX).connect('\\0/tmp/.X11-unix/X0')",
        "vsock": "socket.socket(40, socket.SOCK_STREAM).connect((2, 1))",
        "netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)",
        "ptrace": "assert libc.ptrace(16, os.getppid(), 0, 0) == 0",
        "process_vm_readv": "assert libc.process_vm_readv(os.getpid(), 0, 0, 0, 0, 0) == 0",
        "memory outside processes": "os.memfd_create('x')",
        "shared memory": "assert libc.shmget(0, 1 << 20, 0o1600) >= 0",
        "raise a limit": "resource.setrlimit(resource.RLIMIT_NPROC, (1000, 1000))",
        "raise the memory limit": "resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)",
        "core file": "resource.setrlimit(resource.RLIMIT_CORE, (1 << 30, 1 << 30))",
        "user namespace": "assert libc.unshare(0x10000000) == 0",
        "user namespace by clone": "assert libc.syscall({'x86_64': 56}.get(MACHINE, 220), 0x10000011, 0, 0, 0, 0) > 0",
        "mount": "assert libc.mount(b'none', b'/tmp', b'tmpfs', 0, None) == 0",
        "remount": "assert libc.mount(None, b'/', None, 32, None) == 0",
        "chroot": "os.chroot('/tmp')",
        "setuid": "os.setuid(0)",
        "setgroups": "os.setgroups([0])",
        "sudo": "os.execv('/usr/bin/su', ['su', '-c', 'true'])",
        "priority": "os.nice(-5)",
        "clock": "import time\ntime.clock_settime(time.CLOCK_REALTIME, 0)",
        "host name": "socket.sethostname('x')",
        "x32 system calls": "assert libc.syscall(0x40000000 + 39) > 0",
        "terminal": "open('/dev/tty', 'w')",
        "kernel log": "assert libc.klogctl(3, ctypes.create_string_buffer(100), 100) > 0",
        "clone3 of a user namespace": """
asked = (ctypes.c_uint64 * 8)(0x10000000, 0, 0, 0, 17, 0, 0, 0)
made = libc.syscall(435, asked, 64)
if made == 0: os._exit(0)
assert made > 0
""",
        "io_uring": "assert libc.syscall(425, 8, ctypes.create_string_buffer(256)) >= 0",
        "new file system": "assert libc.syscall(430, b'proc', 0) >= 0",
        "bpf": "assert libc.syscall({'x86_64': 321}.get(MACHINE, 280), 0, ctypes.create_string_buffer(128), 128) >= 0",
        "keyring": "assert libc.syscall({'x86_64': 250}.get(MACHINE, 219), 0, -3, 1, 0, 0) >= 0",
        "page faults": "assert libc.syscall({'x86_64': 323}.get(MACHINE, 282), 0) >= 0",
        "descriptors of another process": "assert libc.syscall(438, os.pidfd_open(os.getpid()), 1, 0) >= 0",
        "32-bit system calls": """
import mmap
code = mmap.mmap(-1, 4096, prot=7)  # mov eax, 20; int 0x80; ret
code.write(bytes.fromhex('b814000000cd80c3') if MACHINE == 'x86_64' else b'')
assert MACHINE == 'x86_64' and ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))() > 0
""",
        "terminal input": "import fcntl, termios\nfcntl.ioctl(0, termios.TIOCSTI, b'x')",
        "hard link out of the work area": "os.link(sys.executable, 'link')",
        "real time": "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))",
        "processes of the host": "assert [p for p in range(20, 5000) if not libc.kill(p, 0)]",
    }.items()
}
