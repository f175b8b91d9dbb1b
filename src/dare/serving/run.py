"""``dare serve``: load a model, say where it answers, and answer until interrupted."""

import socket

from rich.console import Console

from dare.decoding.config import DecodingConfig
from dare.errors import DareError
from dare.models.checkpoint import Checkpoint
from dare.models.packed import packed
from dare.serving.config import ServeConfig
from dare.serving.intake import Served
from dare.serving.scheduler import Scheduler
from dare.train.run import load_model

_PATIENCE = 5
"""Seconds that open requests get to finish after an interrupt."""


def serve(model: str, config: ServeConfig) -> None:
    """Serve ``model`` until Ctrl-C. Raises ``DareError`` where the address is taken or a package is missing."""
    try:
        import uvicorn

        from dare.serving.server import Server
    except ModuleNotFoundError as error:
        raise DareError(
            f'dare serve needs {error.name}; install it: pip install "starlette>=0.46" "uvicorn>=0.34"'
        ) from error
    listener = listen(config.host, config.port)
    checkpoint = load_model(model, config.seed, config.dtype, config.device)
    served = offer(checkpoint, config.name or model, config.decoding)
    # held for as long as the server lives, so that no request waits for it
    decoded = packed(checkpoint.model)
    scheduler = Scheduler(decoded, config.device, config.rows, config.queue, config.groups)
    options = uvicorn.Config(
        Server(served, scheduler).application(), log_level="warning", timeout_graceful_shutdown=_PATIENCE
    )
    _announce(served, listener)
    try:
        uvicorn.Server(options).run(sockets=[listener])
    except KeyboardInterrupt:
        Console(stderr=True).print("stopped", highlight=False)


def offer(checkpoint: Checkpoint, name: str, decoding: DecodingConfig) -> Served:
    """What is served; ``DareError`` where the settings do not fit the model."""
    assert checkpoint.tokenizer is not None
    spec = checkpoint.model.spec
    decoding.cache_for(spec)
    if decoding.max_new_tokens >= spec.context:
        raise DareError(
            f"decoding.max_new_tokens={decoding.max_new_tokens} fills the context of {spec.context}; lower it"
        )
    checkpoint.tokenizer("")  # drops the truncation a file may ask for, which must not happen while threads encode
    return Served(name, spec, checkpoint.tokenizer, decoding)


def listen(host: str, port: int) -> socket.socket:
    """Take the address before the model is loaded, which may take minutes."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise DareError(f"cannot listen on {host}:{port} ({error.strerror}); set host or port") from error


def _announce(served: Served, listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    spec = served.spec
    settings = served.decoding.model_dump(exclude_none=True).items()
    out = Console(highlight=False, markup=False, soft_wrap=True)
    out.print(f"url       http://{f'[{host}]' if ':' in host else host}:{port}/v1")
    out.print(f"model     {served.name} ({spec.family}, {spec.visibility})")
    out.print(f"decoding  {', '.join(f'{name}={value}' for name, value in settings)}")
    out.print("stop with Ctrl-C")
