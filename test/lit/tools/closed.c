// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Loaded ahead of the processes of a job, it refuses them access to each other's memory, as a system does whose
// /proc/sys/kernel/yama/ptrace_scope is 2.

#define _GNU_SOURCE
#include <errno.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static ssize_t access_memory(long number, pid_t pid, const struct iovec *local, unsigned long n,
                             const struct iovec *remote, unsigned long m, unsigned long flags) {
  // This process, or a thread of it.
  if (syscall(SYS_tgkill, getpid(), pid, 0) == 0)
    return syscall(number, pid, local, n, remote, m, flags);
  errno = EPERM;
  return -1;
}

ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long n, const struct iovec *remote,
                         unsigned long m, unsigned long flags) {
  return access_memory(SYS_process_vm_readv, pid, local, n, remote, m, flags);
}

ssize_t process_vm_writev(pid_t pid, const struct iovec *local, unsigned long n, const struct iovec *remote,
                          unsigned long m, unsigned long flags) {
  return access_memory(SYS_process_vm_writev, pid, local, n, remote, m, flags);
}
