// Reads packets with mqtt-packet and writes them again.  Input: a JSON list of [version, hexadecimal octets].
// Output: a JSON list of [what was read, the octets that were written], or [the error] for a packet that is refused.

const packets = require('mqtt-packet');

let input = '';
process.stdin.on('data', (chunk) => { input += chunk; });
process.stdin.on('end', () => {
  const results = JSON.parse(input).map(([version, octets]) => {
    try {
      const parser = packets.parser({ protocolVersion: version });
      const found = [];
      parser.on('packet', (packet) => found.push(packet));
      parser.on('error', (error) => { throw error; });
      parser.parse(Buffer.from(octets, 'hex'));
      if (found.length !== 1) return [`${found.length} packets`];
      return [found[0], packets.generate(found[0], { protocolVersion: version }).toString('hex')];
    } catch (error) {
      return [String(error)];
    }
  });
  console.log(JSON.stringify(results));
});
