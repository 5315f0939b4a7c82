/* Loaded into user-mode Linux before the C library.
 *
 * Linux 6.1 as a process has room for 2696 bytes of what a processor knows of a process (FP_SIZE in arch/x86/um/ptrace_64.c).  The
 * host's kernel takes the whole of it or nothing (EFAULT), which is 11008 bytes where there are tiles (AMX): the first program
 * would end in a panic.  Here the rest is added.  Nobody in there uses it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

enum { WHOLE = 1 << 16, PARTS = 512, KNOWN = 0x3ff }; /* bytes; where it says which parts are in use; all before the tiles */

static char whole[WHOLE]; /* the stacks are too small for it */

typedef long trace(enum __ptrace_request request, int process, void *address, void *data);

long ptrace(enum __ptrace_request request, ...)
{
	static trace *next;
	va_list rest;
	va_start(rest, request);
	int process = va_arg(rest, int);
	void *address = va_arg(rest, void *), *data = va_arg(rest, void *);
	va_end(rest);
	if (next == NULL)
		next = (trace *)dlsym(RTLD_NEXT, "ptrace");
	if ((request != PTRACE_GETREGSET && request != PTRACE_SETREGSET) || (uintptr_t)address != NT_X86_XSTATE)
		return next(request, process, address, data);
	struct iovec *part = data, all = { whole, WHOLE };
	long done = next(PTRACE_GETREGSET, process, address, &all);
	if (done != 0)
		return done;
	size_t size = part->iov_len < all.iov_len ? part->iov_len : all.iov_len;
	if (request == PTRACE_GETREGSET) {
		memcpy(part->iov_base, whole, size);
		part->iov_len = size;
		return 0;
	}
	memcpy(whole, part->iov_base, size);
	if (size < all.iov_len) {
		uint64_t parts;
		memcpy(&parts, whole + PARTS, sizeof parts);
		parts &= KNOWN;
		memcpy(whole + PARTS, &parts, sizeof parts);
	}
	return next(PTRACE_SETREGSET, process, address, &all);
}
