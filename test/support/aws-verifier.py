# A proxy before a source that takes requests signed for Amazon's services (Signature Version 4) alone, and verifies them with
# Amazon's own library for Python: it signs each request anew and compares. It refuses in Amazon's words.
#   python aws-verifier.py TARGET REGION SERVICE     prints its port
# PUT /-/state {"keys": {"ID": {"secret": "...", "token": "..."}}, "ahead": seconds} sets what it knows and its clock; GET tells
# how many requests it has let through and refused.
import http.client
import json
import re
import sys
from datetime import datetime, timedelta, timezone
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from urllib.parse import urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

target, region, service = sys.argv[1:]
state = {"keys": {}, "ahead": 0}
counts = {"passed": 0, "refused": 0}
lock = Lock()
form = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request, SignedHeaders=([^,]+), Signature=([0-9a-f]{64})"
)
allowed_skew = timedelta(minutes=5)


def find_fault(method, path, headers, body):
    """The words with which Amazon refuses the request; None where its signature is right."""
    found = form.fullmatch(headers.get("authorization", ""))
    if found is None:
        return "Missing Authentication Token"
    key_id, day, signed_region, signed_service, names, signature = found.groups()
    key = state["keys"].get(key_id)
    if key is None or headers.get("x-amz-security-token") != key.get("token"):
        return "The security token included in the request is invalid"
    if (signed_region, signed_service) != (region, service):
        return "Credential should be scoped to a valid region"
    stamp = headers.get("x-amz-date", "")
    sent = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
    now = datetime.now(timezone.utc) + timedelta(seconds=state["ahead"])
    if sent < now - allowed_skew:
        return f"Signature expired: {stamp} is now earlier than {(now - allowed_skew):%Y%m%dT%H%M%SZ}"
    if sent > now + allowed_skew:
        return f"Signature not yet current: {stamp} is still later than {(now + allowed_skew):%Y%m%dT%H%M%SZ}"
    signed = {name: headers[name] for name in names.split(";") if name in headers}
    for name in ("host", "x-amz-date"):
        if name not in signed:
            return f"{name} is not signed"
    request = AWSRequest(method, f"http://{headers['host']}{path}", headers=signed, data=body)
    request.context["timestamp"] = stamp
    if stamp[:8] != day:
        return "Date in Credential scope does not match"
    # The library believes the header where there is one.
    if signed.get("x-amz-content-sha256") != sha256(body).hexdigest():
        return "The hash of the body does not match"
    auth = SigV4Auth(Credentials(key_id, key["secret"], key.get("token")), service, region)
    text = auth.string_to_sign(request, auth.canonical_request(request))
    if auth.signature(text, request) != signature:
        return "The request signature we calculated does not match the signature you provided."
    return None


class Proxy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body go out together: apart, each answer waits for an acknowledgement.
    wbufsize = 65_536
    disable_nagle_algorithm = True

    def setup(self):
        super().setup()
        self.source = http.client.HTTPConnection(urlsplit(target).netloc)

    def finish(self):
        self.source.close()
        super().finish()

    def handle_any(self):
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        if self.path == "/-/state":
            return self.handle_state(body)
        headers = {name.lower(): value for name, value in self.headers.items()}
        fault = find_fault(self.command, self.path, headers, body)
        with lock:
            counts["passed" if fault is None else "refused"] += 1
        if fault is None:
            return self.pass_on(headers, body)
        return self.answer(403, {"content-type": "application/json"}, json.dumps({"message": fault}).encode())

    def handle_state(self, body):
        if body:
            state.update(json.loads(body))
        self.answer(200, {"content-type": "application/json"}, json.dumps(counts).encode())

    def pass_on(self, headers, body):
        kept = {name: value for name, value in headers.items() if name not in ("connection", "authorization")}
        self.source.request(self.command, self.path, body, kept)
        answer = self.source.getresponse()
        dropped = ("connection", "transfer-encoding", "content-length", "date", "server")
        told = {name: value for name, value in answer.getheaders() if name.lower() not in dropped}
        self.answer(answer.status, told, answer.read())

    def answer(self, status, headers, body):
        # With the time of the verifier's own clock.
        self.send_response_only(status)
        now = datetime.now(timezone.utc) + timedelta(seconds=state["ahead"])
        self.send_header("Date", f"{now:%a, %d %b %Y %H:%M:%S GMT}")
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = handle_any

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request, client_address):
        # A client may leave while it is answered.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


server = Server(("127.0.0.1", 0), Proxy)
print(server.server_address[1], flush=True)
server.serve_forever()
