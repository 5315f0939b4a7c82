/* The program in the guest: what comes on SCTP port 7777 goes back on the same stream, with the same protocol identifier.
 *
 * A message whose identifier is 1000 is a port instead: a "hello" goes there, and with it an association that we begin. */
#include <arpa/inet.h>
#include <linux/sctp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define SCTP 132
#define DIAL 1000
static char data[1 << 20];

static void answer(int s, struct sctp_rcvinfo *from, struct sockaddr_in *to, size_t size)
{
	char space[CMSG_SPACE(sizeof(struct sctp_sndinfo))] = {0};
	struct iovec part = {data, size};
	struct msghdr out = {to, to ? sizeof *to : 0, &part, 1, space, sizeof space, 0};
	struct cmsghdr *head = CMSG_FIRSTHDR(&out);
	struct sctp_sndinfo how = {0};
	if (!to) {
		how.snd_sid = from->rcv_sid;
		how.snd_flags = from->rcv_flags & SCTP_UNORDERED;
		how.snd_ppid = from->rcv_ppid;
		how.snd_assoc_id = from->rcv_assoc_id;
	}
	head->cmsg_level = SCTP;
	head->cmsg_type = SCTP_SNDINFO;
	head->cmsg_len = CMSG_LEN(sizeof how);
	memcpy(CMSG_DATA(head), &how, sizeof how);
	if (sendmsg(s, &out, 0) < 0)
		perror("sendmsg");
}

int main(void)
{
	int s = socket(AF_INET, SOCK_SEQPACKET, SCTP), yes = 1, size = 1 << 22;
	struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(7777)};
	struct sctp_assoc_value interleaving = {.assoc_id = 0, .assoc_value = 1};
	int level = 2;
	setsockopt(s, SCTP, SCTP_RECVRCVINFO, &yes, sizeof yes);
	setsockopt(s, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
	setsockopt(s, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
	struct sctp_assoc_value resets = {.assoc_id = 0, .assoc_value = SCTP_ENABLE_STRRESET_MASK};
	if (setsockopt(s, SCTP, SCTP_ENABLE_STREAM_RESET, &resets, sizeof resets))
		perror("resets");
	if (setsockopt(s, SCTP, SCTP_FRAGMENT_INTERLEAVE, &level, sizeof level) ||
	    setsockopt(s, SCTP, SCTP_INTERLEAVING_SUPPORTED, &interleaving, sizeof interleaving))
		perror("interleaving");
	if (bind(s, (void *)&here, sizeof here) || listen(s, 9))
		return perror("listen"), 1;
	puts("listening");
	fflush(stdout);
	for (;;) {
		char space[256];
		size_t count = 0;
		struct msghdr in;
		struct sctp_rcvinfo *from = 0;
		do {
			struct iovec part = {data + count, sizeof data - count};
			in = (struct msghdr){0, 0, &part, 1, space, sizeof space, 0};
			ssize_t got = recvmsg(s, &in, 0);
			if (got < 0) {
				perror("recvmsg");
				break;
			}
			count += got;
		} while (!(in.msg_flags & MSG_EOR));
		for (struct cmsghdr *c = CMSG_FIRSTHDR(&in); c; c = CMSG_NXTHDR(&in, c))
			if (c->cmsg_level == SCTP && c->cmsg_type == SCTP_RCVINFO)
				from = (void *)CMSG_DATA(c);
		if (!from || in.msg_flags & MSG_NOTIFICATION)
			continue;
		if (ntohl(from->rcv_ppid) == DIAL) {
			struct sockaddr_in to = {.sin_family = AF_INET};
			data[count] = 0;
			to.sin_port = htons(atoi(data));
			inet_aton("10.0.2.2", &to.sin_addr);
			strcpy(data, "hello");
			answer(s, 0, &to, 5);
		} else {
			answer(s, from, 0, count);
		}
	}
}
