#!/usr/bin/env bash
# aiohttp-retry sends a request again after a 429, if it is told to, with the object that the caller gave as `data`.
# The first try has read a `BytesIO` or an async generator to its end, so that the second one sends nothing, and its 200
# is a success: the upload is there with 0 bytes. An open file is closed by then, and the call raises `ValueError`
# instead of the 429. Bytes and forms are sent whole. Who repeats a refused upload has to build its body anew.
. "$(dirname "$0")/setup"
with_python aiohttp-retry==2.9.1 aiohttp==3.14.5
python - <<'PY'
import asyncio, io, pathlib
from aiohttp import FormData, web
from aiohttp_retry import ExponentialRetry, RetryClient

sizes = []

async def store(request):
    sizes.append(len(await request.read()))
    return web.Response(status=429 if len(sizes) == 1 else 200)

async def chunks():
    yield b"quote" * 100

def form():
    data = FormData()
    data.add_field("quote", io.BytesIO(b"quote" * 100))
    return data

async def upload(data):
    """The answer, and the bytes of each try."""
    sizes.clear()
    options = ExponentialRetry(attempts=3, start_timeout=0.1, statuses={429})
    async with RetryClient(retry_options=options) as client:
        try:
            async with client.post("http://127.0.0.1:18924/", data=data) as response:
                return response.status, list(sizes)
        except ValueError as error:
            return repr(error), list(sizes)

async def main():
    app = web.Application()
    app.router.add_post("/", store)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 18924).start()
    path = pathlib.Path("upload")
    path.write_bytes(b"quote" * 100)
    bodies = {"bytes": path.read_bytes(), "BytesIO": io.BytesIO(path.read_bytes()), "generator": chunks(),
              "file": path.open("rb"), "form": form()}
    found = {name: await upload(data) for name, data in bodies.items()}
    await runner.cleanup()
    for name, (answer, tries) in found.items():
        print(f"{name}: {answer}, bytes of each try {tries}")
    assert found["bytes"] == (200, [500, 500]) and found["BytesIO"] == found["generator"] == (200, [500, 0]), found
    assert found["form"][0] == 200 and len(set(found["form"][1])) == 1, found
    assert "closed file" in found["file"][0] and found["file"][1] == [500], found

asyncio.run(main())
PY
