/* A library for LD_PRELOAD that gives a process faults of its surroundings, by variables of its environment:
 *
 *   FAULT_CLOCK_AHEAD_S    its clock is that many seconds ahead
 *   FAULT_READ_PAUSE_US    every positioned read takes that many microseconds longer
 *   FAULT_SEND_PAUSE_US    it sends more than 4 KiB only once in that many microseconds
 *   FAULT_SLOW_PEERS       addresses to which FAULT_SLOW_PAUSE_US holds instead
 *   FAULT_SLOW_NODE        a node of Slurm on which it holds to everybody
 *   FAULT_SLOW_PAUSE_US
 *   FAULT_OWN_ADDRESS      it connects from this address
 *   FAULT_NO_PEERS         processes whose command line has this word can neither connect nor listen
 *   FAULT_UNSEEN_WHILE     while this file is there, no folder whose name is one of `epochs` and `keepers` can be listed: EIO
 *   FAULT_STILL_IN         a folder in which calls stand still while the file FAULT_STILL_WHILE is there,
 *                          and which is read-only while the file FAULT_READ_ONLY_WHILE is there
 *   FAULT_NO_ROOM_IN       folders, each with a colon behind it, in which no file gets blocks: ENOSPC
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
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

static int ends_with(const char *text, const char *end) {
  size_t size = strlen(text), least = strlen(end);
  return size >= least && strcmp(text + size - least, end) == 0;
}

/* Returns whether a path, or an open file, lies in the folder that has faults. */
static int is_in_faulty(int folder, const char *name) {
  const char *faulty = getenv("FAULT_STILL_IN");
  char link[64], path[4096];
  if (!faulty) return 0;
  if (!name || name[0] != '/') {
    if (folder == AT_FDCWD) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    name = path;
  }
  return strncmp(name, faulty, strlen(faulty)) == 0;
}

/* Waits while the file system of a path, or of an open file, stands still. */
static void stand_still(int folder, const char *name) {
  const char *switch_file = getenv("FAULT_STILL_WHILE");
  if (!switch_file || access(switch_file, F_OK) != 0 || !is_in_faulty(folder, name)) return;
  while (access(switch_file, F_OK) == 0) usleep(20000);
}

/* Returns whether a call that would change the file system is refused. */
static int is_read_only(int folder, const char *name, int flags) {
  const char *switch_file = getenv("FAULT_READ_ONLY_WHILE");
  if (!(flags & (O_WRONLY | O_RDWR | O_CREAT)) || !switch_file || access(switch_file, F_OK) != 0) return 0;
  if (!is_in_faulty(folder, name)) return 0;
  errno = EROFS;
  return 1;
}

#define OPENS(call)                             \
  int call(const char *path, int flags, ...) {  \
    va_list more;                               \
    va_start(more, flags);                      \
    int mode = va_arg(more, int);               \
    va_end(more);                               \
    stand_still(AT_FDCWD, path);                \
    if (is_read_only(AT_FDCWD, path, flags)) return -1; \
    return NEXT(call)(path, flags, mode);       \
  }
#define OPENS_AT(call)                                      \
  int call(int folder, const char *path, int flags, ...) {  \
    va_list more;                                           \
    va_start(more, flags);                                  \
    int mode = va_arg(more, int);                           \
    va_end(more);                                           \
    stand_still(folder, path);                              \
    if (is_read_only(folder, path, flags)) return -1;       \
    return NEXT(call)(folder, path, flags, mode);           \
  }
OPENS(open)
OPENS(open64)
OPENS_AT(openat)
OPENS_AT(openat64)

int mkdir(const char *path, mode_t mode) {
  stand_still(AT_FDCWD, path);
  if (is_read_only(AT_FDCWD, path, O_CREAT)) return -1;
  return NEXT(mkdir)(path, mode);
}

int fsync(int file) {
  stand_still(file, NULL);
  return NEXT(fsync)(file);
}

ssize_t write(int file, const void *data, size_t size) {
  stand_still(file, NULL);
  return NEXT(write)(file, data, size);
}

DIR *opendir(const char *path) {
  stand_still(AT_FDCWD, path);
  const char *switch_file = getenv("FAULT_UNSEEN_WHILE");
  if (switch_file && (ends_with(path, "/epochs") || ends_with(path, "/keepers")) && access(switch_file, F_OK) == 0) {
    errno = EIO;
    return NULL;
  }
  return NEXT(opendir)(path);
}

static int has_no_room(int file) {
  const char *folders = getenv("FAULT_NO_ROOM_IN");
  char link[64], path[4096];
  if (!folders) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t size = readlink(link, path, sizeof path - 1);
  if (size < 0) return 0;
  path[size] = 0;
  for (const char *end; (end = strchr(folders, ':')); folders = end + 1)
    if (strncmp(path, folders, (size_t)(end - folders)) == 0 && path[end - folders] == '/') return 1;
  return 0;
}

int posix_fallocate(int file, off_t offset, off_t size) {
  return has_no_room(file) ? ENOSPC : NEXT(posix_fallocate)(file, offset, size);
}

int posix_fallocate64(int file, off64_t offset, off64_t size) {
  return has_no_room(file) ? ENOSPC : NEXT(posix_fallocate64)(file, offset, size);
}

/* Waits for the next turn: turns come at a fixed pace, so that a late one does not slow down those after it. */
static void wait_turn(double us) {
  static struct timespec next;
  struct timespec now;
  NEXT(clock_gettime)(CLOCK_MONOTONIC, &now);
  double late_us = 1e6 * (double)(now.tv_sec - next.tv_sec) + (double)(now.tv_nsec - next.tv_nsec) / 1e3;
  if (late_us > 20 * us) next = now;
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
  next.tv_nsec += (long)(us * 1e3);
  while (next.tv_nsec >= 1000000000) next.tv_nsec -= 1000000000, next.tv_sec++;
}

static int is_slow_node(void) {
  const char *slow = getenv("FAULT_SLOW_NODE"), *here = getenv("SLURMD_NODENAME");
  return slow && here && strcmp(slow, here) == 0;
}

static int is_slow_peer(int file) {
  const char *peers = getenv("FAULT_SLOW_PEERS");
  struct sockaddr_in peer;
  socklen_t size = sizeof peer;
  char text[INET_ADDRSTRLEN + 1];
  if (!peers || getpeername(file, (struct sockaddr *)&peer, &size) != 0 || peer.sin_family != AF_INET) return 0;
  if (!inet_ntop(AF_INET, &peer.sin_addr, text, sizeof text)) return 0;
  return strstr(peers, strcat(text, ",")) != NULL;
}

ssize_t send(int file, const void *data, size_t size, int flags) {
  double us = given(is_slow_node() || is_slow_peer(file) ? "FAULT_SLOW_PAUSE_US" : "FAULT_SEND_PAUSE_US");
  if (size > LEAST_SENT && us > 0) wait_turn(us);
  return NEXT(send)(file, data, size, flags);
}

int connect(int file, const struct sockaddr *address, socklen_t size) {
  if (address->sa_family != AF_UNIX && is_cut_off()) return errno = EHOSTUNREACH, -1;
  const char *own = getenv("FAULT_OWN_ADDRESS");
  struct sockaddr_in from = {.sin_family = AF_INET};
  if (own && address->sa_family == AF_INET && inet_pton(AF_INET, own, &from.sin_addr) == 1)
    bind(file, (struct sockaddr *)&from, sizeof from);
  return NEXT(connect)(file, address, size);
}

int listen(int file, int count) {
  if (is_cut_off()) return errno = ENETDOWN, -1;
  return NEXT(listen)(file, count);
}
