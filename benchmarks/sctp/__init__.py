"""SCTP over UDP on loopback: kernels, and usrsctp hosted in the same way."""
