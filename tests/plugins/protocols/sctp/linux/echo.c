/* The program in the guest: what comes on SCTP port 7777 goes back on the same stream, with the same protocol identifier.
 *
 * Some identifiers ask for something else.  1000: the message is a port of the sender's; a "hello" goes there, and with it an
 * association that we begin.  1001: abort the association, with the message as the reason.  1002: shut it down.
 *
 * What becomes of associations is printed. */
#include <arpa/inet.h>
#include <linux/sctp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define SCTP 132
enum { DIAL = 1000, ABORT, CLOSE };
static char data[1 << 20];

/* Print what became of an association; return whether the rest of a message will not come. */
static int tell(const union sctp_notification *news)
{
	static const char *const states[] = {"up", "lost", "restarted", "shut down", "not begun"};
	if (news->sn_header.sn_type == SCTP_ASSOC_CHANGE)
		printf("association %s\n", states[news->sn_assoc_change.sac_state]);
	fflush(stdout);
	return news->sn_header.sn_type == SCTP_PARTIAL_DELIVERY_EVENT;
}

static void ask_for_news(int s, int type)
{
	struct sctp_event news = {.se_type = type, .se_on = 1};
	if (setsockopt(s, SCTP, SCTP_EVENT, &news, sizeof news))
		perror("news");
}

static void answer(int s, struct sctp_rcvinfo *from, struct sockaddr_in *to, size_t size)
{
	char space[CMSG_SPACE(sizeof(struct sctp_sndinfo))] = {0};
	struct iovec part = {data, size};
	struct msghdr out = {to, to ? sizeof *to : 0, &part, 1, space, sizeof space, 0};
	struct cmsghdr *head = CMSG_FIRSTHDR(&out);
	struct sctp_sndinfo how = {0};
	if (!to) {
		how.snd_sid = from->rcv_sid;
		how.snd_flags = ntohl(from->rcv_ppid) == ABORT ? SCTP_ABORT
			: ntohl(from->rcv_ppid) == CLOSE ? SCTP_EOF : from->rcv_flags & SCTP_UNORDERED;
		how.snd_ppid = from->rcv_ppid;
		how.snd_assoc_id = from->rcv_assoc_id;
	}
	head->cmsg_level = SCTP;
	head->cmsg_type = SCTP_SNDINFO;
	head->cmsg_len = CMSG_LEN(sizeof how);
	memcpy(CMSG_DATA(head), &how, sizeof how);
	if (sendmsg(s, &out, MSG_NOSIGNAL) < 0)
		perror("sendmsg");
}

int main(void)
{
	int s = socket(AF_INET, SOCK_SEQPACKET, SCTP), yes = 1, size = 1 << 22;
	struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(7777)};
	struct sctp_assoc_value interleaving = {.assoc_id = 0, .assoc_value = 1};
	int level = 2;
	ask_for_news(s, SCTP_ASSOC_CHANGE);
	ask_for_news(s, SCTP_PARTIAL_DELIVERY_EVENT);
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
		struct sockaddr_in peer;
		struct msghdr in = {0};
		struct sctp_rcvinfo *from = 0;
		while (!(in.msg_flags & MSG_EOR) || in.msg_flags & MSG_NOTIFICATION) {
			struct iovec part = {data + count, sizeof data - count};
			in = (struct msghdr){&peer, sizeof peer, &part, 1, space, sizeof space, 0};
			ssize_t got = recvmsg(s, &in, 0);
			if (got < 0) {
				perror("recvmsg");
				in.msg_controllen = 0;
				break;
			}
			if (!(in.msg_flags & MSG_NOTIFICATION))
				count += got;
			else if (tell((void *)(data + count)))
				count = 0;
		}
		for (struct cmsghdr *c = CMSG_FIRSTHDR(&in); c; c = CMSG_NXTHDR(&in, c))
			if (c->cmsg_level == SCTP && c->cmsg_type == SCTP_RCVINFO)
				from = (void *)CMSG_DATA(c);
		if (!from)
			continue;
		if (ntohl(from->rcv_ppid) == DIAL) {
			data[count] = 0;
			peer.sin_port = htons(atoi(data));
			strcpy(data, "hello");
			answer(s, 0, &peer, 5);
		} else {
			answer(s, from, 0, ntohl(from->rcv_ppid) == CLOSE ? 0 : count);
		}
	}
}
