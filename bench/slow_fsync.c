/* Preloaded into a hub: each fsync and fdatasync takes ANTIPHON_FSYNC_MS longer. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static void pause_a_little(void) {
  const char *text = getenv("ANTIPHON_FSYNC_MS");
  long ms = text ? atol(text) : 0;
  struct timespec wait = {ms / 1000, (ms % 1000) * 1000000L};
  nanosleep(&wait, 0);
}

int fsync(int fd) {
  int (*real)(int) = dlsym(RTLD_NEXT, "fsync");
  pause_a_little();
  return real(fd);
}

int fdatasync(int fd) {
  int (*real)(int) = dlsym(RTLD_NEXT, "fdatasync");
  pause_a_little();
  return real(fd);
}
