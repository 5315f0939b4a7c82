"""A stand-in for an object store: as much of S3's protocol as pyarrow's file system speaks, on loopback, in memory."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "bucket"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "stand-in",
    "AWS_SECRET_ACCESS_KEY": "stand-in",
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""The environment of its clients."""
_DATE = "Mon, 01 Jan 2024 00:00:00 GMT"


class ObjectStore:
    """Objects of one bucket.  ``before`` is called before each request that is carried out."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        """Method and key of each request."""
        self.refuses: Callable[[str, str], bool] = lambda method, key: False
        """Whether a request (method and key) is answered with "access denied"."""
        self.before: Callable[[str, str], None] = lambda method, key: None
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.port = 0

    def address(self, folder: str = "journal") -> str:
        return f"s3://{BUCKET}/{folder}?endpoint_override=127.0.0.1:{self.port}&scheme=http&region=us-east-1"

    def named(self, ending: str) -> list[str]:
        """Return the keys that end so."""
        return sorted(key for key in list(self.objects) if key.endswith(ending))


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Serve a store until the context is left."""
    store = ObjectStore()

    class Handler(_Handler):
        pass

    Handler.store = store
    server = _Server(("127.0.0.1", 0), Handler)
    store.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Print nothing: clients are killed."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    store: ObjectStore

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        _, bucket, *rest = unquote(parts.path).split("/", 2)
        key = rest[0] if rest else ""
        body = self._body()
        self.store.requests.append((self.command, key))
        self.store.before(self.command, key)
        if bucket != BUCKET:
            self._fail(404, "NoSuchBucket")
        elif self.store.refuses(self.command, key):
            self._fail(403, "AccessDenied")
        else:
            getattr(self, f"_{self.command.lower()}")(key, query, body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            raw = b"".join(self._chunks())
        else:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "aws-chunked" not in self.headers.get("Content-Encoding", ""):
            return raw
        found = bytearray()
        while raw:
            head, _, raw = raw.partition(b"\r\n")
            size = int(head.split(b";")[0], 16)
            if not size:
                break
            found += raw[:size]
            raw = raw[size + 2 :]
        return bytes(found)

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _get(self, key: str, query: dict[str, str], body: bytes) -> None:
        if not key:
            self._list(query)
            return
        content = self.store.objects.get(key)
        if content is None:
            self._fail(404, "NoSuchKey")
            return
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted is None:
            self._answer(200, content, ETag=_tag(content))
            return
        first, last = int(wanted[1]), min(int(wanted[2] or len(content) - 1), len(content) - 1)
        if first > last:
            self._fail(416, "InvalidRange")
            return
        about = f"bytes {first}-{last}/{len(content)}"
        self._answer(206, content[first : last + 1], **{"Content-Range": about, "ETag": _tag(content)})

    def _head(self, key: str, query: dict[str, str], body: bytes) -> None:
        content = self.store.objects.get(key) if key else b""
        if content is None:
            self._fail(404, "")
        else:
            self._answer(200, content, ETag=_tag(content))

    def _put(self, key: str, query: dict[str, str], body: bytes) -> None:
        if "uploadId" in query:
            self.store.uploads[query["uploadId"]][int(query["partNumber"])] = body
        else:
            self.store.objects[key] = body
        self._answer(200, b"", ETag=_tag(body))

    def _post(self, key: str, query: dict[str, str], body: bytes) -> None:
        if "uploads" in query:
            upload = uuid.uuid4().hex
            self.store.uploads[upload] = {}
            result = f"<Bucket>{BUCKET}</Bucket><Key>{escape(key)}</Key><UploadId>{upload}</UploadId>"
            self._xml("InitiateMultipartUploadResult", result)
        elif "delete" in query:
            for each in re.findall(rb"<Key>(.*?)</Key>", body):
                self.store.objects.pop(each.decode(), None)
            self._xml("DeleteResult", "")
        else:
            # Only now the object is there.
            parts = self.store.uploads.pop(query["uploadId"])
            self.store.objects[key] = b"".join(parts[number] for number in sorted(parts))
            self._xml(
                "CompleteMultipartUploadResult",
                f"<Key>{escape(key)}</Key><ETag>{_tag(self.store.objects[key])}</ETag>",
            )

    def _delete(self, key: str, query: dict[str, str], body: bytes) -> None:
        if "uploadId" in query:
            self.store.uploads.pop(query["uploadId"], None)
        else:
            self.store.objects.pop(key, None)
        self._answer(204, b"")

    def _list(self, query: dict[str, str]) -> None:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        found, folders = [], set()
        for key in sorted(self.store.objects):
            rest = key.removeprefix(prefix) if key.startswith(prefix) else None
            if rest is None:
                continue
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.split(delimiter)[0] + delimiter)
            else:
                found.append(key)
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified>"
            f"<Size>{len(self.store.objects[key])}</Size></Contents>"
            for key in found
        )
        common = "".join(
            f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in sorted(folders)
        )
        count = len(found) + len(folders)
        self._xml(
            "ListBucketResult",
            f"<Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{count}</KeyCount>"
            f"<MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>{contents}{common}",
        )

    def _xml(self, name: str, content: str) -> None:
        self._answer(200, f'<?xml version="1.0" encoding="UTF-8"?><{name}>{content}</{name}>'.encode())

    def _fail(self, status: int, code: str) -> None:
        text = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>" if code else ""
        self._answer(status, text.encode())

    def _answer(self, status: int, content: bytes, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Last-Modified", _DATE)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _tag(content: bytes) -> str:
    return f'"{md5(content).hexdigest()}"'
