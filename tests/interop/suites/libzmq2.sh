#!/bin/sh
# libzmq 2.1.11 (2012), which speaks ZMTP 1.0 and nothing else.  Its sources are in the source distribution of pyzmq-static, whose
# setup.py is of Python 2: so pip can neither build nor download it, and only says where its index is.  No root; takes g++.
# $1: the Python that fetches it, with its whole path.
set -eu
python=$1
cd "$(dirname "$0")"
stamp=.libzmq2/stamp-$(cksum < libzmq2.sh | cut -d ' ' -f 1) # another script: make it again
[ -f "$stamp" ] && exit 0
rm -rf .libzmq2 && mkdir .libzmq2
"$python" - <<'END'
import hashlib, io, os, re, subprocess, sys, tarfile, urllib.parse, urllib.request
from pip._internal.models.index import PyPI

config = subprocess.run([sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True)
index = os.environ.get("PIP_INDEX_URL") or config.stdout.strip() or PyPI.simple_url
page = f"{index.rstrip('/')}/pyzmq-static/"
with urllib.request.urlopen(page, timeout=60) as answer:
    link = re.search(r'href="([^"]*/pyzmq-static-2\.1\.11\.2\.tar\.gz)', answer.read().decode())
with urllib.request.urlopen(urllib.parse.urljoin(page, link[1]), timeout=60) as answer:
    octets = answer.read()
wanted = "284ec43f8d899f8c1df438be576f903162f1616557b64ddb221237102a672970"
if hashlib.sha256(octets).hexdigest() != wanted:
    raise SystemExit("pyzmq-static is not what it was")
with tarfile.open(fileobj=io.BytesIO(octets)) as archive:
    archive.extractall(".libzmq2", filter="data")
END
cd .libzmq2/pyzmq-static-2.1.11.2
g++ -O1 -w -fpermissive -std=gnu++98 -fPIC -shared -Iinclude -Iinclude_linux -Iinclude_uuid -o ../libzmq2.so \
	src/*.cpp src_uuid/*.c -lpthread -lrt
cd ../..
rm -rf .libzmq2/pyzmq-static-2.1.11.2
touch "$stamp"
