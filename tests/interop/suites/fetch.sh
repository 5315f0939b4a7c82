#!/bin/sh
# The source distributions of clients whose suites run against our broker, and of pyzmq: wheels come without them.  No root.
# Versions and hashes are those of requirements/dev.lock.  $1: the Python whose pip fetches them, with its whole path.
set -eu
python=$1
cd "$(dirname "$0")"
wanted=$(sed -n '/^\(amqp\|amqpstorm\|celery\|kombu\)==/,/[^\\]$/p' ../../../requirements/dev.lock)
# Their build backends are none of our tools, so pip fetches those as well to learn the versions.
isolated=$(sed -n '/^\(aiomqtt\|paho-mqtt\|pyzmq\)==/,/[^\\]$/p' ../../../requirements/dev.lock)
stamp=.sources/stamp-$(printf '%s' "$wanted$isolated" | cksum | cut -d ' ' -f 1) # another version: fetch again
[ -f "$stamp" ] && exit 0
rm -rf .sources && mkdir .sources
printf '%s\n' "$wanted" > .sources/wanted.txt
"$python" -m pip --disable-pip-version-check download --quiet --require-hashes --no-deps --no-build-isolation \
	--no-binary :all: --dest .sources --requirement .sources/wanted.txt
printf '%s\n' "$isolated" > .sources/isolated.txt
"$python" -m pip --disable-pip-version-check download --quiet --require-hashes --no-deps \
	--no-binary aiomqtt,paho-mqtt,pyzmq --dest .sources --requirement .sources/isolated.txt
for archive in .sources/*.tar.gz; do
	tar -xzf "$archive" -C .sources
	name=$(basename "$archive" .tar.gz)
	mv ".sources/$name" ".sources/${name%-*}" # without the version
	rm "$archive"
done
touch "$stamp"
