"""Federation: links by which a broker of this kernel (downstream) gets messages of another one (upstream)."""
