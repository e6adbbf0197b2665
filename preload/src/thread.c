/* What each thread remembers (guard.rs). In C for the initial-exec model, which Rust cannot ask for: it is a plain load,
 * where the usual model may allocate in the first access after a dlopen, and these are read in signal handlers. */
#include <stdint.h>

struct rsock_thread {
    uint64_t deferred;
    uint8_t inside;
    uint8_t ran;
};

static __thread __attribute__((tls_model("initial-exec"))) struct rsock_thread thread;

struct rsock_thread *rsock_thread(void)
{
    return &thread;
}
