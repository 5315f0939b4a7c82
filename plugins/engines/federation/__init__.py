"""Federation: a link makes a broker of this kernel (downstream) receive messages of a broker elsewhere (upstream)."""
