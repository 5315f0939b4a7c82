#!/bin/sh
# Debian's kernels with SCTP, of which image/ beside this keeps what the tests need: one for a guest of QEMU (11 MB of a package of 70 MB),
# and user-mode Linux, which is a program (of a package of 41 MB).  No root.
set -eu
cd "$(dirname "$0")"
package=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
stamp=image/$package-$(cksum < fetch.sh | cut -d ' ' -f 1) # another kernel, or other modules: fetch again
[ -f "$stamp" ] && exit 0
rm -rf image && mkdir -p image/modules image/user_mode
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
(cd "$scratch" && apt-get download -q "$package" user-mode-linux && for each in ./*.deb; do dpkg-deb -x "$each" "${each%%_*}"; done)
cp "$scratch/$package"/boot/vmlinuz-* image/vmlinuz
cp "$scratch/user-mode-linux/usr/bin/linux.uml" image/linux.uml
# keep FOLDER PACKAGE MODULE...: modules, in the order in which they can be loaded
keep() {
	folder=$1 from=$2
	shift 2
	for module; do
		cp "$(find "$scratch/$from" -name "$module.ko")" "$folder"
		echo "$module" >> "$folder/order"
	done
}
keep image/modules "$package" virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci failover net_failover virtio_net \
	crc32c_generic libcrc32c udp_tunnel ip6_udp_tunnel sctp
keep image/user_mode user-mode-linux crc-ccitt ipv6 llc stp bridge veth udp_tunnel ip6_udp_tunnel hmac sctp
touch "$stamp"
