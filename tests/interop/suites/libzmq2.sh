#!/bin/sh
# libzmq 2.1.11 (2012), which speaks ZMTP 1.0 and nothing else.  Its sources are in the source distribution of pyzmq-static, whose
# setup.py is of Python 2: so pip can neither build nor download it.  No root; takes g++.
# $1: the Python that fetches it, with its whole path.
set -eu
python=$1
cd "$(dirname "$0")"
stamp=.libzmq2/stamp-$(cksum < libzmq2.sh | cut -d ' ' -f 1) # another script: make it again
[ -f "$stamp" ] && exit 0
rm -rf .libzmq2 && mkdir .libzmq2
"$python" - <<'END'
import hashlib, io, tarfile, urllib.request

packages = "https://files.pythonhosted.org/packages/c0/43/98a70b6a6496b27ed400da61006dfd1e7eabb71694f30af5c49cfc591b01"
with urllib.request.urlopen(f"{packages}/pyzmq-static-2.1.11.2.tar.gz", timeout=60) as answer:
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
