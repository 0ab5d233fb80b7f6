/*
 * Preloaded into User-Mode Linux 6.1 on processors with AMX.
 *
 * That kernel keeps 2696 bytes of each task's extended state and hands them back
 * with PTRACE_SETREGSET. Where the processor has AMX the whole state has 10 KiB
 * and more, and Linux refuses a part of it (EFAULT): UML panics at its first
 * process. Here the part is made whole: AMX's own state stays in its initial
 * configuration, which is what a program that never used it has. Linux 6.13's UML
 * asks for the size and needs none of this.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
	XSTATE_BV = 512,	/* offset of the bitmap of valid components (Intel SDM 1, 13.4.2) */
	KEPT = 0x2ff		/* x87 to AVX-512 and PKRU: those within 2696 bytes */
};

/*
 * Linux may answer EAGAIN on a busy machine. UML kills the process then, without a word but in its own log ("set fp
 * regs failed, errno = 11"), so it is asked again.
 */
enum { TRIES = 1000 };

static long regset(long request, long pid, struct iovec *whole)
{
	long result = -1;

	for (int n = 0; n < TRIES; n++) {
		result = syscall(SYS_ptrace, request, pid, NT_X86_XSTATE, whole);
		if (result >= 0 || errno != EAGAIN)
			break;
		usleep(100);
	}
	return result;
}

/* UML has one thread of its own and small stacks. */
static unsigned char state[1 << 16];

static long set_xstate(long pid, const struct iovec *part)
{
	static struct iovec whole;
	uint64_t valid;

	whole.iov_base = state;
	whole.iov_len = sizeof state;
	if (regset(PTRACE_GETREGSET, pid, &whole) < 0)
		return -1;
	if (part->iov_len > whole.iov_len) {
		errno = EFAULT;
		return -1;
	}
	memset(state, 0, whole.iov_len);
	memcpy(state, part->iov_base, part->iov_len);
	memcpy(&valid, state + XSTATE_BV, sizeof valid);
	valid &= KEPT;
	memcpy(state + XSTATE_BV, &valid, sizeof valid);
	return regset(PTRACE_SETREGSET, pid, &whole);
}

long ptrace(enum __ptrace_request request, ...)
{
	va_list args;
	long pid, result, word;
	void *addr, *data;

	va_start(args, request);
	pid = va_arg(args, int);
	addr = va_arg(args, void *);
	data = va_arg(args, void *);
	va_end(args);

	if (request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA || request == PTRACE_PEEKUSER) {
		/* the system call stores the word, the C function returns it */
		if (syscall(SYS_ptrace, request, pid, addr, &word) < 0)
			return -1;
		errno = 0;
		return word;
	}
	result = syscall(SYS_ptrace, request, pid, addr, data);
	if (result < 0 && (errno == EFAULT || errno == EAGAIN) && request == PTRACE_SETREGSET && (uintptr_t)addr == NT_X86_XSTATE)
		return set_xstate(pid, data);
	return result;
}
