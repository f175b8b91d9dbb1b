"""The HTTP server: OpenAI's routes over one scheduler."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from dare.errors import DareError
from dare.serving.answers import Answers
from dare.serving.intake import Order, Served
from dare.serving.protocol import ApiError, ChatRequest, CompletionRequest, Request, read
from dare.serving.scheduler import ClosedError, Decoded, Event, Job, QueueFullError, Scheduler, State

_LARGEST_BODY = 16 * 2**20
log = logging.getLogger("dare.serving")


class Server:
    """The routes of one served model."""

    def __init__(self, served: Served, scheduler: Scheduler):
        self.served, self.scheduler, self.started = served, scheduler, int(time.time())

    def application(self) -> Starlette:
        """The ASGI application; when it shuts down, the scheduler does."""
        routes = [
            Route("/health", self.health),
            Route("/v1/models", self.models),
            Route("/v1/completions", _guarded(self.completions), methods=["POST"]),
            Route("/v1/chat/completions", _guarded(self.chat), methods=["POST"]),
        ]
        return Starlette(routes=routes, lifespan=self._lifespan, exception_handlers={HTTPException: _not_found})

    async def health(self, request: HttpRequest) -> Response:
        """Whether rows are taken, and how many there are."""
        state = {"status": "ok", "live": self.scheduler.live, "waiting": self.scheduler.waiting}
        return JSONResponse(state)

    async def models(self, request: HttpRequest) -> Response:
        """The one model, with what a client must know to read its tokens."""
        spec = self.served.spec
        facts = {
            name: getattr(spec, name)
            for name in ("family", "attention", "block_size", "context", "vocab_size", "mask_id", "eos_ids")
        }
        decoding = self.served.decoding.model_dump(mode="json")
        model = {"id": self.served.name, "object": "model", "created": self.started, "owned_by": "dare", **facts}
        return JSONResponse({"object": "list", "data": [{**model, "decoding": decoding}]})

    async def completions(self, request: HttpRequest) -> Response:
        """Continue prompts."""
        return await self._answer(request, read(CompletionRequest, await _json(request)))

    async def chat(self, request: HttpRequest) -> Response:
        """Answer a chat."""
        return await self._answer(request, read(ChatRequest, await _json(request)))

    async def _answer(self, http: HttpRequest, request: Request) -> Response:
        # a long prompt takes a while to encode, and others' chunks must not wait for it
        order = await asyncio.to_thread(self.served.order, request)
        if len(order.rows) > self.scheduler.queue:
            raise ApiError(400, f"{len(order.rows)} answers in one request; at most {self.scheduler.queue} may wait")
        answers = Answers(order, self.served.name)
        decoding = _Decoding(order, self.scheduler)
        if request.stream:
            headers = {"Cache-Control": "no-cache"}
            return StreamingResponse(_stream(decoding, answers), media_type="text/event-stream", headers=headers)
        gone = asyncio.ensure_future(_disconnected(http))
        whole = asyncio.ensure_future(decoding.rows())
        try:
            await asyncio.wait({gone, whole}, return_when=asyncio.FIRST_COMPLETED)
            return JSONResponse(answers.whole(await whole)) if whole.done() else Response(status_code=499)
        finally:
            gone.cancel()
            whole.cancel()
            decoding.cancel()

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(self.scheduler.close)


class _Decoding:
    """The rows of one request on the scheduler, and what it tells about them."""

    def __init__(self, order: Order, scheduler: Scheduler):
        self.scheduler, self.left = scheduler, len(order.rows)
        self.queue: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()
        self.loop = asyncio.get_running_loop()
        ending, request = order.ending, order.request
        self.jobs = [
            Job(
                prompt=prompt,
                decoding=order.decoding,
                key=noise,
                tell=self._teller(index),
                watched=request.stream,
                recorded=request.return_canvas,
                ended=ending.reached if ending.stops else None,
            )
            for index, (prompt, noise) in enumerate(order.rows)
        ]
        try:
            scheduler.submit(self.jobs)
        except QueueFullError as error:
            raise ApiError(429, str(error), code="queue_full") from error
        except ClosedError as error:
            raise ApiError(503, str(error)) from error

    async def events(self) -> AsyncIterator[tuple[int, State | Decoded]]:
        """Yield what happens to each row until all are decoded; ``ApiError`` where one failed."""
        while self.left:
            index, event = await self.queue.get()
            if isinstance(event, Exception):
                raise _failure(event)
            self.left -= isinstance(event, Decoded)
            yield index, event

    async def rows(self) -> list[Decoded]:
        """Wait for all rows."""
        done = {index: event async for index, event in self.events() if isinstance(event, Decoded)}
        return [done[index] for index in range(len(self.jobs))]

    def cancel(self) -> None:
        """Forget the rows that are not decoded yet."""
        if self.left:
            self.scheduler.cancel(self.jobs)

    def _teller(self, index: int) -> Callable[[Event], None]:
        def tell(event: Event) -> None:
            if not self.loop.is_closed():
                self.loop.call_soon_threadsafe(self.queue.put_nowait, (index, event))

        return tell


async def _stream(decoding: _Decoding, answers: Answers) -> AsyncIterator[str]:
    """Server-sent events: text as it becomes final, steps where asked for, and the end of each choice."""
    order = answers.order
    sent, counted = [""] * len(decoding.jobs), [0] * len(decoding.jobs)
    try:
        for index in range(len(decoding.jobs)) if answers.chat else ():
            yield _event(answers.opening(index))
        async for index, event in decoding.events():
            if isinstance(event, State):
                text = order.ending.certain(event.ids[: event.final])
                if len(text) > len(sent[index]) or order.request.stream_steps:
                    state = event if order.request.stream_steps else None
                    yield _event(answers.chunk(index, text[len(sent[index]) :], state))
                    sent[index] = text
            else:
                answer = order.ending.close(event.ids)
                counted[index] = len(answer.ids)
                yield _event(answers.last(index, event, answer, answer.text[len(sent[index]) :]))
        if order.request.stream_options and order.request.stream_options.include_usage:
            yield _event(answers.counts(counted))
        yield "data: [DONE]\n\n"
    except Exception as error:
        yield _event(_failure(error).body())
    finally:
        decoding.cancel()


def _event(content: dict[str, Any]) -> str:
    return f"data: {json.dumps(content, ensure_ascii=False)}\n\n"


async def _json(request: HttpRequest) -> Any:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _LARGEST_BODY:
            raise ApiError(413, f"the body exceeds {_LARGEST_BODY} bytes; send fewer or shorter prompts")
    try:
        return json.loads(body)
    except ValueError as error:
        raise ApiError(400, f"the body is not valid JSON: {error}") from error


async def _disconnected(request: HttpRequest) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _guarded(endpoint: Callable[[HttpRequest], Awaitable[Response]]) -> Callable[[HttpRequest], Awaitable[Response]]:
    async def guarded(request: HttpRequest) -> Response:
        try:
            return await endpoint(request)
        except Exception as error:
            return _refused(_failure(error))

    return guarded


def _failure(error: Exception) -> ApiError:
    """What a client may know of a failure: the reasons we word ourselves."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, ClosedError):
        return ApiError(503, str(error))
    log.error("request failed: %s: %s", type(error).__name__, error)
    return ApiError(500, str(error) if isinstance(error, DareError) else f"internal error: {type(error).__name__}")


def _refused(error: ApiError) -> Response:
    headers = {"Retry-After": "1"} if error.status in (429, 503) else None
    return JSONResponse(error.body(), status_code=error.status, headers=headers)


async def _not_found(request: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _refused(ApiError(error.status_code, f"{request.method} {request.url.path}: {error.detail}"))
