/* A library for LD_PRELOAD that gives a process faults of its surroundings, by variables of its environment:
 *
 *   FAULT_CLOCK_AHEAD_S    its clock is that many seconds ahead
 *   FAULT_READ_PAUSE_US    every positioned read takes that many microseconds longer
 *   FAULT_SEND_PAUSE_US    every sending of more than 4 KiB takes that many microseconds longer
 *   FAULT_NO_PEERS         processes whose command line has this word can neither connect nor listen
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
enum { LEAST_SENT = 4096, LONGEST_COMMAND = 65536 };

static double given(const char *name) {
  const char *text = getenv(name);
  return text ? atof(text) : 0;
}

static void pause_for(const char *name) {
  double us = given(name);
  if (us <= 0) return;
  struct timespec left = {(time_t)(us / 1e6), (long)(us - 1e6 * (double)(long)(us / 1e6)) * 1000};
  nanosleep(&left, NULL);
}

static int is_cut_off(void) {
  const char *word = getenv("FAULT_NO_PEERS");
  if (!word) return 0;
  static char command[LONGEST_COMMAND];
  int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  ssize_t size = read(file, command, sizeof command - 1);
  close(file);
  return size > 0 && memmem(command, (size_t)size, word, strlen(word)) != NULL;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int code = NEXT(clock_gettime)(clock, now);
  double ahead = given("FAULT_CLOCK_AHEAD_S");
  if (code == 0 && clock == CLOCK_REALTIME && ahead != 0) {
    double nanoseconds = (double)now->tv_nsec + 1e9 * (ahead - (double)(long)ahead);
    now->tv_sec += (long)ahead;
    while (nanoseconds >= 1e9) nanoseconds -= 1e9, now->tv_sec++;
    while (nanoseconds < 0) nanoseconds += 1e9, now->tv_sec--;
    now->tv_nsec = (long)nanoseconds;
  }
  return code;
}

ssize_t preadv(int file, const struct iovec *parts, int count, off_t offset) {
  pause_for("FAULT_READ_PAUSE_US");
  return NEXT(preadv)(file, parts, count, offset);
}

ssize_t preadv64(int file, const struct iovec *parts, int count, off64_t offset) {
  pause_for("FAULT_READ_PAUSE_US");
  return NEXT(preadv64)(file, parts, count, offset);
}

ssize_t preadv64v2(int file, const struct iovec *parts, int count, off64_t offset, int flags) {
  pause_for("FAULT_READ_PAUSE_US");
  return NEXT(preadv64v2)(file, parts, count, offset, flags);
}

ssize_t send(int file, const void *data, size_t size, int flags) {
  if (size > LEAST_SENT) pause_for("FAULT_SEND_PAUSE_US");
  return NEXT(send)(file, data, size, flags);
}

int connect(int file, const struct sockaddr *address, socklen_t size) {
  if (address->sa_family != AF_UNIX && is_cut_off()) return errno = EHOSTUNREACH, -1;
  return NEXT(connect)(file, address, size);
}

int listen(int file, int count) {
  if (is_cut_off()) return errno = ENETDOWN, -1;
  return NEXT(listen)(file, count);
}
