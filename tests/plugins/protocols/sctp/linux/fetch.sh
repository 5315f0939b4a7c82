#!/bin/sh
# Debian's kernels with SCTP, of which image/ beside this keeps what the tests need: one for a guest of QEMU (11 MB of a package of 70 MB),
# and user-mode Linux, which is a program (of a package of 41 MB).  No root.
set -eu
cd "$(dirname "$0")"
kernel=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
stamp=image/$kernel-$(cksum < fetch.sh | cut -d ' ' -f 1) # another kernel, or other modules: fetch again
[ -f "$stamp" ] && exit 0
rm -rf image && mkdir -p image/modules image/user_mode
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# fetch FOLDER PACKAGE...: what is in packages
fetch() {
	folder=$scratch/$1
	shift
	mkdir "$folder"
	(cd "$folder" && apt-get download -q "$@" && for each in ./*.deb; do dpkg-deb -x "$each" .; done)
}
# Later Debians divide a kernel into packages.
parts=$(apt-cache depends "$kernel" | sed -n 's/.*Depends: \(linux-\(binary\|modules\)-[0-9].*\)/\1/p')
# shellcheck disable=SC2086 # several words
fetch guest "$kernel" $parts
fetch user-mode user-mode-linux
find "$scratch/guest" -name 'vmlinuz*' -type f -exec cp {} image/vmlinuz \;
cp "$scratch/user-mode/usr/bin/linux.uml" image/linux.uml
# add MODULE: one of "from", behind those that it depends on; one that is not there is built in, or not known to this kernel
add() {
	set -- "$(find "$from" -name "$(echo "$1" | tr _- '??').ko*" | head -n 1)"
	[ -n "$1" ] || return 0
	set -- "$1" "$(basename "${1%.ko*}")"
	[ ! -f "$to/$2.ko" ] || return 0
	case $1 in *.xz) busybox xz -dc "$1" ;; *) cat "$1" ;; esac > "$to/$2.ko"
	for each in $(tr '\0' '\n' < "$to/$2.ko" | sed -n 's/^depends=//p' | tr , ' '); do add "$each"; done
	echo "$2" >> "$to/order"
}
# keep FROM TO MODULE...: modules, in the order in which they can be loaded
keep() {
	from=$scratch/$1 to=image/$2
	shift 2
	for module; do add "$module"; done
	[ -f "$to/sctp.ko" ]
}
keep guest modules virtio_pci virtio_net crc32c_generic sctp
keep user-mode user_mode bridge veth hmac sctp
touch "$stamp"
