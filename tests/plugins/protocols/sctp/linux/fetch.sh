#!/bin/sh
# Debian's kernel with SCTP, for a guest of QEMU: of a package of 70 MB, 11 MB are kept in image/ beside this.  No root.
# Not the kernel for clouds: that one cannot read the host's files (9p).
set -eu
cd "$(dirname "$0")"
package=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
stamp=image/$package-$(cksum < fetch.sh | cut -d ' ' -f 1) # another kernel, or other modules: fetch again
[ -f "$stamp" ] && exit 0
rm -rf image && mkdir -p image/modules
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
(cd "$scratch" && apt-get download -q "$package" && dpkg-deb -x ./*.deb tree)
cp "$scratch"/tree/boot/vmlinuz-* image/vmlinuz
for module in virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci failover net_failover virtio_net \
	netfs fscache 9pnet 9pnet_virtio 9p veth llc stp bridge crc32c_generic libcrc32c udp_tunnel ip6_udp_tunnel sctp; do
	cp "$(find "$scratch/tree/lib/modules" -name "$module.ko")" image/modules/
	echo "$module" >> image/modules/order
done
touch "$stamp"
