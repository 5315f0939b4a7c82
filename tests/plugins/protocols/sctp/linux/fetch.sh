#!/bin/sh
# Debian's kernel with SCTP, for a guest of QEMU: of a package of 27 MB, 14 MB are kept in image/ beside this.  No root.
set -eu
cd "$(dirname "$0")"
package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
[ -f "image/$package" ] && exit 0
rm -rf image && mkdir -p image/modules
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
(cd "$scratch" && apt-get download -q "$package" && dpkg-deb -x ./*.deb tree)
cp "$scratch"/tree/boot/vmlinuz-* image/vmlinuz
for module in virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci failover net_failover virtio_net \
	libcrc32c udp_tunnel ip6_udp_tunnel sctp; do
	cp "$(find "$scratch/tree/lib/modules" -name "$module.ko")" image/modules/
	echo "$module" >> image/modules/order
done
touch "image/$package"
