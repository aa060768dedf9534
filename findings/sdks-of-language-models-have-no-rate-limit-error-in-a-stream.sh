#!/usr/bin/env bash
# A gateway may find a limit used up in the middle of a stream, whose status 200 has been sent. It sends an error event
# of the type `rate_limit_error` then. The SDKs of OpenAI and Anthropic for Python have a `RateLimitError`, and raise
# another class for that event: openai its base class without a status, anthropic an `APIStatusError` of status 200.
# Neither repeats the call. A program that waits on `except RateLimitError` fails.
. "$(dirname "$0")/setup"
with_python openai==3.57.0 anthropic==2.14.0
python - <<'PY'
import json, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import anthropic, openai

ERROR = {"type": "rate_limit_error", "code": "rate_limit_exceeded", "message": "two calls in 30 s"}
CHUNK = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m",
         "choices": [{"index": 0, "delta": {"content": "he"}, "finish_reason": None}]}
MESSAGE = {"id": "1", "type": "message", "role": "assistant", "content": [], "model": "m", "stop_reason": None,
           "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
requests = []

class Gateway(BaseHTTPRequestHandler):
    def do_POST(self):
        requests.append(self.path)
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        if "chat" in self.path:
            events = [(None, CHUNK), (None, {"error": ERROR})]
        else:
            start = {"type": "message_start", "message": MESSAGE}
            events = [("message_start", start), ("error", {"type": "error", "error": ERROR})]
        for name, data in events:
            line = f"event: {name}\n" if name else ""
            self.wfile.write(f"{line}data: {json.dumps(data)}\n\n".encode())

    def log_message(self, *_):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Gateway)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
question = {"model": "m", "messages": [{"role": "user", "content": "why"}]}

def raised(stream, module):
    requests.clear()
    parts = 0
    try:
        for _ in stream():
            parts += 1
    except module.APIError as error:
        found = type(error).__name__, getattr(error, "status_code", None), isinstance(error, module.RateLimitError)
        print(module.__name__, "after", parts, "part:", *found[:2], "requests:", len(requests))
        return *found, parts, len(requests)

by_openai = openai.OpenAI(api_key="k", base_url=url).chat.completions
by_anthropic = anthropic.Anthropic(api_key="k", base_url=url).messages
found = raised(lambda: by_openai.create(stream=True, **question), openai)
assert found == ("APIError", None, False, 1, 1), found
found = raised(lambda: by_anthropic.create(stream=True, max_tokens=9, **question), anthropic)
assert found == ("APIStatusError", 200, False, 1, 1), found
PY
