"""What a request may say, and how an error is told: the shapes of OpenAI's API reference, and our own fields."""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dare.errors import nearest

_PROMPT = "expected a string, a list of strings, a list of token ids or a list of such lists, none of them empty"
Stop = Annotated[str, Field(min_length=1)]
Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]


class ApiError(Exception):
    """A refusal with its HTTP ``status``; ``param`` names the field at fault."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None):
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code

    def body(self) -> dict[str, Any]:
        """Return OpenAI's error object."""
        kind = "invalid_request_error" if self.status < 500 and self.status != 429 else "server_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class StreamOptions(_Shape):
    """``include_usage`` asks for a last chunk with the token counts."""

    include_usage: bool = False


class Request(_Shape):
    """Fields of both endpoints. None: the server's own setting.

    Beyond OpenAI's: ``top_k``; ``decoding``, any field of ``DecodingConfig``; ``stream_steps``, every denoising step in
    the stream; ``return_token_ids``; ``return_step_maps``, the forward pass that decided each token; ``return_canvas``,
    every position of the canvas with its log-probability, also behind the end of the answer.
    """

    model: str | None = None
    max_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1)
    n: int = Field(1, ge=1, le=128)
    seed: Int64 | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=16)] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: str | None = None
    decoding: dict[str, Any] = {}
    stream_steps: bool = False
    return_token_ids: bool = False
    return_step_maps: bool = False
    return_canvas: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> "Request":
        for name in ("stream_steps", "stream_options"):
            if getattr(self, name) and not self.stream:
                raise ValueError(f"{name} needs stream=true")
        return self

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        return () if self.stop is None else (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def wants_logprobs(self) -> bool:
        """Whether the answer carries log-probabilities."""
        return False


class CompletionRequest(Request):
    """``POST /v1/completions``. ``logprobs`` can only be 0: of each position the decoded token's alone is known.

    ``noise_keys``, one per prompt, stand in for ``seed`` where the caller draws the keys (``dare.diffusion.noise``).
    """

    prompt: str | list[str] | list[int] | list[list[int]]
    logprobs: Literal[0] | None = None
    noise_keys: list[Int64] | None = None

    @model_validator(mode="after")
    def _one_source_of_noise(self) -> "CompletionRequest":
        if self.noise_keys is not None and (self.seed is not None or self.n > 1):
            raise ValueError("noise_keys decide about the noise; leave out seed and n")
        return self

    @property
    def wants_logprobs(self) -> bool:
        """Whether the answer carries log-probabilities."""
        return self.logprobs is not None


class TextPart(_Shape):
    """A part of a turn's content; there is no other kind than text."""

    type: Literal["text"]
    text: str


class Turn(_Shape):
    """One turn of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str | list[TextPart]

    @property
    def text(self) -> str:
        """The content as one string."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class ChatRequest(Request):
    """``POST /v1/chat/completions``. ``logprobs`` are those of the decoded tokens, without alternatives."""

    messages: list[Turn] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool = False
    top_logprobs: Literal[0] | None = None

    @model_validator(mode="after")
    def _one_length(self) -> "ChatRequest":
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise ValueError("max_tokens and max_completion_tokens say the same; keep one of them")
        return self

    @property
    def wants_logprobs(self) -> bool:
        """Whether the answer carries log-probabilities."""
        return self.logprobs


R = TypeVar("R", bound=Request)


def read(schema: type[R], body: Any) -> R:
    """Check a request's JSON; ``ApiError`` 400 names the field, what was given and what is expected."""
    if not isinstance(body, dict):
        raise ApiError(400, f"the body must be a JSON object, found {type(body).__name__}")
    try:
        return schema.model_validate(body)
    except ValidationError as error:
        raise _refusal(error, schema) from error


def _refusal(error: ValidationError, schema: type[Request]) -> ApiError:
    first = error.errors()[0]
    field = str(first["loc"][0]) if first["loc"] else None
    if first["type"] == "extra_forbidden" and len(first["loc"]) == 1:
        return ApiError(400, f"unknown field {field!r}; {nearest(str(field), schema.model_fields)}", field)
    if first["type"] == "missing" and len(first["loc"]) == 1:
        return ApiError(400, f"field {field!r} is required", field)
    if field == "prompt":
        return ApiError(400, f"prompt: {_PROMPT}", field)
    if field is None:
        return ApiError(400, first["msg"].removeprefix("Value error, "))
    place = ".".join(map(str, first["loc"]))
    return ApiError(400, f"{place}={_short(first['input'])}: {first['msg']}", field)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
