"""A system call filter for bubblewrap: refuse what no test solution needs and namespaces alone do not contain.

Sockets (a network namespace does not hold vsock), reading other processes, memory that lives outside any process and
so escapes the address space limit (System V, memfd), namespaces, mounts, keys, clocks and young kernel interfaces.
"""

import errno
import platform
import struct

from dare.errors import DareError

_REFUSED = {  # name: number on x86_64, on aarch64
    "socket": (41, 198),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "perf_event_open": (298, 241),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "personality": (135, 92),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "syslog": (103, 116),
}
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column above, AUDIT_ARCH
_X32 = 0x40000000
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000


def seccomp_filter(machine: str | None = None) -> bytes:
    """Return the filter as classic BPF: listed calls fail with EPERM, calls of another architecture kill.

    ``machine`` defaults to this one; another than x86_64 or aarch64 raises ``DareError``.
    """
    machine = machine or platform.machine()
    if machine not in _MACHINES:
        raise DareError(f"sandbox backend 'bwrap' knows {', '.join(_MACHINES)}, not {machine!r}; use backend 'remote'")
    column, architecture = _MACHINES[machine]
    refused = [numbers[column] for numbers in _REFUSED.values()]
    last = len(refused)
    code = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    code += [(_AT_LEAST, last + 1, 0, _X32)]
    code += [(_EQUAL, last - place, 0, number) for place, number in enumerate(refused)]
    code += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERRNO | errno.EPERM)]
    return b"".join(struct.pack("=HBBI", *step) for step in code)
