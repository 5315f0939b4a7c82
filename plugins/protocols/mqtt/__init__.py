"""MQTT 3.1.1 and 5.0 (and 3.1 as 3.1.1), sans-I/O: bytes to packets and back, for servers and clients.

=================  ===========================================================================================
module             what it has
=================  ===========================================================================================
``packets``        the packet types, as structs; what ``Parser`` returns and ``encode`` takes
``properties``     the properties of MQTT 5.0: the struct ``Properties`` and the table of them
``reason_codes``   the reason codes of MQTT 5.0 and the return codes of MQTT 3.1.1
``errors``         ``PacketFault``: what is wrong with a peer's packet, with a reason code
``parser``         ``Parser``: bytes in any chunking to packets; consecutive PUBLISH packets are one object
``encoder``        ``encode``: a packet to bytes
``publishing``     ``PublishPrefix`` and ``publish_batch``: many messages of one topic to bytes at little cost
``topics``         topic names and filters: what is valid, and their form as keys of the kernel
``messages``       the envelope of a PUBLISH, and the topic and properties of an envelope
=================  ===========================================================================================

In short::

    parser = Parser("server", max_packet_bytes=1 << 20)      # a client: Parser("client", version=5)
    packets = parser.receive_data(data)                      # raises PacketFault and nothing else
    encode(Connack(reason_code=ReasonCode.SUCCESS), parser.version)
    prefix = PublishPrefix(parser.version, "a/b", properties, qos=1)
    publish_batch(prefix, payloads, ids, width=0)              # buffers to write
    acknowledge(PacketType.PUBACK, ids)                      # bytes

Sections and statements are cited as "MQTT 5.0, 3.3.2.3" and "[MQTT-3.3.1-2]".
"""
