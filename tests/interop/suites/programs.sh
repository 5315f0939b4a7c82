#!/bin/sh
# An environment with the programs of programs.txt, in which the packages of the project's environment can be imported.  No root.
# $1: the Python of that environment, with its whole path.
set -eu
python=$1
cd "$(dirname "$0")"
stamp=.programs/stamp-$(cksum < programs.txt | cut -d ' ' -f 1) # other programs: make it again
[ -f "$stamp" ] && exit 0
rm -rf .programs
"$python" -m venv --without-pip .programs
"$python" -c 'import os, sysconfig; print(sysconfig.get_path("purelib"), os.path.realpath("../../.."), sep="\n")' \
	> "$(.programs/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/project.pth"
"$python" -m pip --disable-pip-version-check --python .programs/bin/python install --quiet --requirement programs.txt
touch "$stamp"
