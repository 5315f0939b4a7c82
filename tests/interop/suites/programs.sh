#!/bin/sh
# An environment with the programs of programs.txt, in which the packages of the project's environment can be imported, and the
# suites of those that have one.  No root.
# $1: the Python of that environment, with its whole path.
set -eu
python=$1
cd "$(dirname "$0")"
stamp=.programs/stamp-$(cat programs.txt programs.sh | cksum | cut -d ' ' -f 1) # other programs: make it again
[ -f "$stamp" ] && exit 0
rm -rf .programs
"$python" -m venv --without-pip .programs
"$python" -c 'import os, sysconfig; print(sysconfig.get_path("purelib"), os.path.realpath("../../.."), sep="\n")' \
	> "$(.programs/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/project.pth"
"$python" -m pip --disable-pip-version-check --python .programs/bin/python install --quiet --require-hashes --no-deps \
	--requirement programs.txt
# Their suites are in their source distributions.  Without the packages, so that what was installed is tested.
mkdir .programs/sources
sed -n '/^\(pyleco\|zmq-tubes\)==/,/[^\\]$/p' programs.txt > .programs/sources/wanted.txt
"$python" -m pip --disable-pip-version-check download --quiet --require-hashes --no-deps \
	--no-binary pyleco,zmq-tubes --dest .programs/sources --requirement .programs/sources/wanted.txt
for archive in .programs/sources/*.tar.gz; do
	name=$(basename "$archive" .tar.gz)
	mkdir ".programs/sources/${name%-*}"
	tar -xzf "$archive" -C ".programs/sources/${name%-*}" --strip-components 1 "$name/tests"
	rm "$archive"
done
touch "$stamp"
