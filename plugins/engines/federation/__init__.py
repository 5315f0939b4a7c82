"""Federation: a broker of this kernel is the client of a broker elsewhere, and gets what it wants of that one's messages."""
