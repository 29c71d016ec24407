"""An HTTP proxy on loopback between a client and a server, which fails requests as a network or a server would."""

import contextlib
import http.client
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FaultProxy:
    """`fault(method, path)` decides on each request: None, "500", "slow", "cut" (a part of the answer), "lost" (an
    upload that is acknowledged and dropped) or "close" (the connection ends after the request was carried out).
    """

    def __init__(self, port):
        self.upstream = port
        self.fault = lambda method, path: None
        self.requests = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self):
                proxy.handle(self)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_one

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def handle(self, request):
        body = self._body(request)
        self.requests.append((request.command, request.path, len(body)))
        fault = self.fault(request.command, request.path)
        if fault == "500":
            return self._answer(request, 500, {}, b"<Error><Code>InternalError</Code></Error>")
        if fault == "lost":
            return self._answer(request, 200, {"ETag": '"0123"'}, b"")
        if fault == "slow":
            time.sleep(3)
        status, headers, answer = self._forward(request, body)
        if fault == "close":
            request.close_connection = True
            return None
        self._answer(request, status, headers, answer, cut=fault == "cut")
        return None

    def _body(self, request):
        if "chunked" in request.headers.get("Transfer-Encoding", ""):
            pieces = []
            while size := int(request.rfile.readline().strip().split(b";")[0], 16):
                pieces.append(request.rfile.read(size))
                request.rfile.readline()
            request.rfile.readline()
            return b"".join(pieces)
        return request.rfile.read(int(request.headers.get("Content-Length", 0)))

    def _forward(self, request, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.upstream, timeout=30)
        with contextlib.closing(connection):
            skipped = {"connection", "transfer-encoding", "content-length"}
            headers = {k: v for k, v in request.headers.items() if k.lower() not in skipped}
            connection.request(request.command, request.path, body, headers | {"Content-Length": str(len(body))})
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()

    def _answer(self, request, status, headers, answer, cut=False):
        with contextlib.suppress(OSError):
            request.send_response(status)
            for name, value in headers.items():
                if name.lower() not in {"connection", "transfer-encoding", "date", "server"} | {"content-length"}:
                    request.send_header(name, value)
            length = headers.get("Content-Length", len(answer)) if request.command == "HEAD" else len(answer)
            request.send_header("Content-Length", str(length))
            request.end_headers()
            if request.command != "HEAD":
                request.wfile.write(answer[: len(answer) // 2] if cut else answer)
            if cut:
                request.close_connection = True
