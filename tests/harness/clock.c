/* A wall clock that a test sets. Loaded into a server with LD_PRELOAD, it answers the two functions
 * that tell the time of day with the system's time plus the microseconds that the file named by
 * CLOCK_OFFSET holds, a signed 64-bit number. The file is mapped: what a test writes there counts at
 * once. Timers, which go by the monotonic clock, are left alone, unless CLOCK_MONOTONIC_TOO is set. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset;
static int is_monotonic_too;

__attribute__((constructor)) static void find_offset(void) {
  const char *name = getenv("CLOCK_OFFSET");
  is_monotonic_too = getenv("CLOCK_MONOTONIC_TOO") != NULL;
  int file = name ? open(name, O_RDONLY) : -1;
  if (file < 0)
    return;
  void *page = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (page != MAP_FAILED)
    offset = page;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
  int failed = syscall(SYS_clock_gettime, clock, time);
  int is_wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
  int is_monotonic = clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE;
  if (failed || !offset || !(is_wall || (is_monotonic && is_monotonic_too)))
    return failed;
  int64_t micros = time->tv_sec * INT64_C(1000000) + time->tv_nsec / 1000 + *offset;
  time->tv_sec = micros / 1000000;
  time->tv_nsec = micros % 1000000 * 1000;
  return 0;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
  struct timespec now;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &now))
    return -1;
  time->tv_sec = now.tv_sec;
  time->tv_usec = now.tv_nsec / 1000;
  return 0;
}
