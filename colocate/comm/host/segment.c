/* segment.c - the shared memory of a host communicator: barriers, slots, and why the group ended.
 */
/* SPDX-License-Identifier: Apache-2.0 */

/* The segment is a memfd that all ranks and the daemon map: a header, then two slots per rank. A
 * struct tdm__comm_segment is one process's mapping of it, used by one thread; the header is
 * shared and changed with atomics only.
 *
 * State: arrivals_and_aborted counts the arrivals of all ranks at barriers. The bit ABORTED_FLAG
 * ends the group; from then on the count does not change, so that all ranks agree on which
 * barrier completed. end_reason is written before the flag and read after it.
 *
 * Waiting ranks spin for about a microsecond, then sleep on the futex wake_counter, which changes
 * with each event. Numbers read from the shared header are checked or copied once, because
 * another process could change them. */

#include "colocate/comm/host/segment.h"

#include "colocate/comm/rank_list.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SEGMENT_MAGIC = 0x54444d53, LINE_BYTES = 64, SPIN_ROUNDS = 40 };

/* The header and the slots are multiples of this. A slot has room for an element of each rank. */
enum { SLOT_BYTES_UNIT = 4096 };

_Static_assert(TDM_COLLECTIVE_RANKS_MAX * sizeof(double) <= SLOT_BYTES_UNIT,
               "a slot has room for an element of each rank");

/* Bit of arrivals_and_aborted: the group has ended. */
#define ABORTED_FLAG ((uint64_t)1 << 63)

/* The record of one rank in the header, on a separate cache line. The rank writes it, except
 * `is_missing`; all ranks read it. */
struct rank_state {
    /* Number of barriers at which this rank has arrived. */
    _Alignas(LINE_BYTES) _Atomic uint64_t arrivals;
    /* Operations of the last two barriers, by parity. */
    struct tdm__collective_op calls[2];
    _Atomic uint8_t has_left; /* 1 if the rank has left. */
    /* 1 if the rank had not arrived when a timeout ended the group. Written by the rank that ended
     * it. */
    _Atomic uint8_t is_missing;
};

_Static_assert(sizeof(struct rank_state) == LINE_BYTES, "a rank's record is one cache line");

/* The shared header of the segment. The padding keeps words that different ranks write on
 * different cache lines. */
struct header {           /* NOLINT(clang-analyzer-optin.performance.Padding) */
    uint32_t magic;       /* SEGMENT_MAGIC. */
    uint32_t ranks_count; /* Number of ranks. */
    uint64_t slot_bytes;  /* Bytes of a slot. */
    _Alignas(LINE_BYTES) _Atomic uint64_t
        arrivals_and_aborted; /* Arrivals of all ranks at barriers, and ABORTED_FLAG. */
    _Alignas(LINE_BYTES) _Atomic uint32_t wake_counter; /* Futex word; changes with each event. */
    /* Number of ranks that may sleep on wake_counter. */
    _Atomic uint32_t sleepers_count;
    /* Rank + 1, and above 16 bits the enum tdm__comm_end_reason; 0 if no rank ended the group. */
    _Atomic uint32_t end_reason;
    _Atomic uint32_t left_count; /* Number of ranks that have left. */
    struct rank_state ranks[];   /* Records by rank. */
};

/* One process's mapping of a segment; one thread uses it. */
struct tdm__comm_segment {
    struct header *header; /* Shared header. */
    size_t mapped_bytes;   /* Bytes mapped: the header, or all. */
    /* Copy of the header's value, which another process could change. */
    uint32_t ranks_count;
    size_t slot_bytes; /* Copy of the header's value. */
    /* Number of barriers at which this rank has arrived. */
    uint64_t arrivals;
};

/* Returns the size up to the first slot of a segment: that of the header, rounded up. */
static size_t header_bytes(uint32_t ranks_count)
{
    size_t size_bytes = sizeof(struct header) + ranks_count * sizeof(struct rank_state);

    return (size_bytes + SLOT_BYTES_UNIT - 1) / SLOT_BYTES_UNIT * SLOT_BYTES_UNIT;
}

/* Returns the size of a segment. */
static size_t segment_bytes(uint32_t ranks_count, size_t slot_bytes)
{
    return header_bytes(ranks_count) + 2 * (size_t)ranks_count * slot_bytes;
}

tdm_status tdm__comm_segment_create(const struct tdm__comm_segment_options *options, int *fd_out)
{
    struct header start = {.magic = SEGMENT_MAGIC, .ranks_count = options->ranks_count};
    size_t slot_bytes =
        (options->slot_bytes + SLOT_BYTES_UNIT - 1) / SLOT_BYTES_UNIT * SLOT_BYTES_UNIT;
    int fd;

    if (options->ranks_count == 0 || options->ranks_count > TDM_COLLECTIVE_RANKS_MAX) {
        return tdm__fail(TDM_E_LIMIT, "a group of %u ranks: 1 to %d are possible",
                         options->ranks_count, TDM_COLLECTIVE_RANKS_MAX);
    }
    if (options->slot_bytes == 0 || options->slot_bytes > (size_t)1 << 32) {
        return tdm__fail(TDM_E_LIMIT, "slots of %zu bytes: 1 byte to 4 GiB are possible",
                         options->slot_bytes);
    }
    start.slot_bytes = slot_bytes;
    fd = memfd_create("tandem-group", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return tdm__fail_errno(errno, "memfd_create for a group");
    }
    if (ftruncate(fd, (off_t)segment_bytes(options->ranks_count, slot_bytes)) != 0 ||
        pwrite(fd, &start, sizeof(start), 0) != (ssize_t)sizeof(start) ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        int error_number = errno;

        (void)close(fd);
        return tdm__fail_errno(error_number, "shared memory of a group of %u ranks",
                               options->ranks_count);
    }
    *fd_out = fd;
    return TDM_OK;
}

/* Reads the header and checks it against the size of the memfd. */
static tdm_status segment_check_header(int fd, struct header *header_out)
{
    struct stat about;

    if (fstat(fd, &about) != 0 ||
        pread(fd, header_out, sizeof(*header_out), 0) != (ssize_t)sizeof(*header_out)) {
        return tdm__fail_errno(errno, "a group's shared memory cannot be read");
    }
    if (header_out->magic != SEGMENT_MAGIC || header_out->ranks_count == 0 ||
        header_out->ranks_count > TDM_COLLECTIVE_RANKS_MAX ||
        header_out->slot_bytes < SLOT_BYTES_UNIT || header_out->slot_bytes % SLOT_BYTES_UNIT != 0 ||
        header_out->slot_bytes > (uint64_t)1 << 33 ||
        (uint64_t)about.st_size != segment_bytes(header_out->ranks_count, header_out->slot_bytes)) {
        return tdm__fail(TDM_E_PROTOCOL, "this is no group's shared memory");
    }
    return TDM_OK;
}

tdm_status tdm__comm_segment_map(int fd, bool header_only, struct tdm__comm_segment **segment_out)
{
    struct tdm__comm_segment *segment;
    struct header header = {.magic = 0};

    TDM_TRY(segment_check_header(fd, &header));
    segment = calloc(1, sizeof(*segment));
    if (segment == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a group's segment");
    }
    segment->ranks_count = header.ranks_count;
    segment->slot_bytes = header.slot_bytes;
    segment->mapped_bytes = header_only ? header_bytes(header.ranks_count)
                                        : segment_bytes(header.ranks_count, header.slot_bytes);
    segment->header = mmap(NULL, segment->mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (segment->header == MAP_FAILED) {
        free(segment);
        return tdm__fail_errno(errno, "mmap: a group's shared memory");
    }
    *segment_out = segment;
    return TDM_OK;
}

void tdm__comm_segment_unmap(struct tdm__comm_segment *segment)
{
    if (segment != NULL) {
        (void)munmap(segment->header, segment->mapped_bytes);
        free(segment);
    }
}

uint32_t tdm__comm_segment_ranks_count(const struct tdm__comm_segment *segment)
{
    return segment->ranks_count;
}

size_t tdm__comm_segment_slot_bytes(const struct tdm__comm_segment *segment)
{
    return segment->slot_bytes;
}

void *tdm__comm_segment_slot(const struct tdm__comm_segment *segment, uint32_t rank,
                             uint32_t parity)
{
    size_t first_bytes = header_bytes(segment->ranks_count);

    TDM_ASSERT(rank < segment->ranks_count && segment->mapped_bytes > first_bytes);
    return (char *)segment->header + first_bytes +
           (2 * (size_t)rank + parity % 2) * segment->slot_bytes;
}

/* ---- waking and waiting ----------------------------------------------------------------- */

/* Calls futex(2). */
static long futex(_Atomic uint32_t *word, int operation, uint32_t value,
                  const struct timespec *timeout)
{
    return syscall(SYS_futex, word, operation, value, timeout, NULL, 0);
}

/* Changes the futex word and wakes all sleepers. Sequential consistency pairs with
 * segment_sleep(): either the sleeper sees the new counter and does not sleep, or this function
 * sees it among the sleepers and wakes it. */
static void segment_wake_all(struct header *header)
{
    (void)atomic_fetch_add_explicit(&header->wake_counter, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&header->sleepers_count, memory_order_seq_cst) > 0) {
        (void)futex(&header->wake_counter, FUTEX_WAKE, INT32_MAX, NULL);
    }
}

/* Sleeps until wake_counter is no longer `seen` or the deadline passes. A rank that is killed
 * here stays counted, which only costs needless wake-ups. */
static void segment_sleep(struct header *header, uint32_t seen, int64_t deadline_ms)
{
    int64_t remaining_ms = tdm__deadline_remaining_ms(deadline_ms);
    struct timespec timeout = {remaining_ms / 1000, remaining_ms % 1000 * 1000000};

    (void)atomic_fetch_add_explicit(&header->sleepers_count, 1, memory_order_seq_cst);
    (void)futex(&header->wake_counter, FUTEX_WAIT, seen, remaining_ms < 0 ? NULL : &timeout);
    (void)atomic_fetch_sub_explicit(&header->sleepers_count, 1, memory_order_seq_cst);
}

/* ---- the end of a group ------------------------------------------------------------------- */

/* Sets the flag that ends the group and wakes all ranks. */
static void segment_set_aborted(struct header *header)
{
    /* Release: a rank that sees the flag also sees the end_reason, which was written before. */
    (void)atomic_fetch_or_explicit(&header->arrivals_and_aborted, ABORTED_FLAG,
                                   memory_order_release);
    segment_wake_all(header);
}

void tdm__comm_segment_abort(struct tdm__comm_segment *segment, uint32_t rank,
                             enum tdm__comm_end_reason end)
{
    uint32_t none = 0;

    TDM_ASSERT(rank < segment->ranks_count);
    if ((atomic_load_explicit(&segment->header->arrivals_and_aborted, memory_order_acquire) &
         ABORTED_FLAG) != 0) {
        return; /* The group has ended already; the first reason stays. */
    }
    /* Relaxed: the flag ABORTED_FLAG is released after it. */
    (void)atomic_compare_exchange_strong_explicit(&segment->header->end_reason, &none,
                                                  (uint32_t)end << 16 | (rank + 1),
                                                  memory_order_relaxed, memory_order_relaxed);
    segment_set_aborted(segment->header);
}

void tdm__comm_segment_leave(struct tdm__comm_segment *segment, uint32_t rank)
{
    /* Release, both: pairs with segment_check_left_ranks(). The rank's arrivals are final before it
     * is marked as gone, and it is marked before it is counted. */
    if (atomic_exchange_explicit(&segment->header->ranks[rank].has_left, 1, memory_order_release) ==
        0) {
        (void)atomic_fetch_add_explicit(&segment->header->left_count, 1, memory_order_release);
    }
    segment_wake_all(segment->header);
}

bool tdm__comm_segment_all_left(const struct tdm__comm_segment *segment)
{
    return atomic_load_explicit(&segment->header->left_count, memory_order_relaxed) >=
           segment->ranks_count;
}

/* Returns true if a rank has not arrived at the barrier that this rank is in. */
static bool segment_rank_is_absent(const struct tdm__comm_segment *segment, uint32_t rank)
{
    /* Relaxed: only counts are compared; no data is read because of them. */
    return atomic_load_explicit(&segment->header->ranks[rank].arrivals, memory_order_relaxed) <
           segment->arrivals;
}

/* Names the ranks that did not arrive before a timeout ended the group. */
static const char *missing_ranks_text(const struct tdm__comm_segment *segment,
                                      char text[TDM__RANK_LIST_BYTES])
{
    struct tdm__rank_list missing = {.count = 0};

    for (uint32_t i = 0; i < segment->ranks_count; i++) {
        if (atomic_load_explicit(&segment->header->ranks[i].is_missing, memory_order_relaxed) !=
            0) {
            tdm__rank_list_add(&missing, i);
        }
    }
    return tdm__rank_list_text(&missing, text);
}

/* Fails with the reason why the group has ended. */
static tdm_status segment_fail_aborted(const struct tdm__comm_segment *segment)
{
    static const char *const ends[] = {"", "died", "has left", "gave up",
                                       "was in another call or with another size"};
    struct header *header = segment->header;
    uint32_t end_reason = atomic_load_explicit(&header->end_reason, memory_order_relaxed);
    uint32_t end = end_reason >> 16;
    char text[TDM__RANK_LIST_BYTES];

    if (end_reason != 0 && end < sizeof(ends) / sizeof(ends[0])) {
        return tdm__fail(end == TDM__COMM_RANK_MISMATCHED ? TDM_E_INVAL : TDM_E_ABORTED,
                         "rank %u of %u %s: the group has ended and must be created again",
                         (end_reason & 0xffff) - 1, segment->ranks_count, ends[end]);
    }
    return tdm__fail(TDM_E_TIMEOUT,
                     "%s of %u did not come in time: the group has ended and must be created again",
                     missing_ranks_text(segment, text), segment->ranks_count);
}

tdm_status tdm__comm_segment_check(const struct tdm__comm_segment *segment)
{
    /* Acquire: pairs with segment_set_aborted(), for the end_reason. */
    uint64_t arrivals_and_aborted =
        atomic_load_explicit(&segment->header->arrivals_and_aborted, memory_order_acquire);

    return (arrivals_and_aborted & ABORTED_FLAG) != 0 ? segment_fail_aborted(segment) : TDM_OK;
}

/* ---- barriers ------------------------------------------------------------------------------- */

/* Counts one arrival unless the group has ended, and returns whether it did. After the end the
 * count does not change, so that all ranks agree on whether a barrier completed. */
static bool segment_arrive(struct header *header, uint64_t target)
{
    /* Acquire, here and where the exchange fails: pairs with segment_set_aborted(), for the
     * end_reason. */
    uint64_t arrivals_and_aborted =
        atomic_load_explicit(&header->arrivals_and_aborted, memory_order_acquire);

    do {
        if ((arrivals_and_aborted & ABORTED_FLAG) != 0) {
            return false;
        }
        /* Release: this rank's slot is visible to ranks that see the count. Acquire: pairs with
         * the other ranks' arrivals in case this one is the last. */
    } while (!atomic_compare_exchange_weak_explicit(&header->arrivals_and_aborted,
                                                    &arrivals_and_aborted, arrivals_and_aborted + 1,
                                                    memory_order_acq_rel, memory_order_acquire));
    if (arrivals_and_aborted + 1 == target) {
        segment_wake_all(header);
    }
    return true;
}

/* Ends the group at the deadline with the missing ranks, unless the barrier completes first. */
static void segment_time_out(struct tdm__comm_segment *segment)
{
    struct header *header = segment->header;
    uint64_t target = segment->arrivals * segment->ranks_count;
    uint64_t arrivals_and_aborted =
        atomic_load_explicit(&header->arrivals_and_aborted, memory_order_relaxed);

    do {
        if ((arrivals_and_aborted & ABORTED_FLAG) != 0 || arrivals_and_aborted >= target) {
            return;
        }
        /* Relaxed: the flag ABORTED_FLAG is released after it. */
        for (uint32_t i = 0; i < segment->ranks_count; i++) {
            atomic_store_explicit(&header->ranks[i].is_missing,
                                  segment_rank_is_absent(segment, i) ? 1 : 0, memory_order_relaxed);
        }
    } while (!atomic_compare_exchange_weak_explicit(
        &header->arrivals_and_aborted, &arrivals_and_aborted, arrivals_and_aborted | ABORTED_FLAG,
        memory_order_release, memory_order_relaxed));
    segment_wake_all(header);
}

/* Ends the group if a rank that this one waits for has left. */
static void segment_check_left_ranks(struct tdm__comm_segment *segment)
{
    struct header *header = segment->header;

    /* Acquire, both: pairs with tdm__comm_segment_leave(). */
    if (atomic_load_explicit(&header->left_count, memory_order_acquire) == 0) {
        return;
    }
    for (uint32_t i = 0; i < segment->ranks_count; i++) {
        if (atomic_load_explicit(&header->ranks[i].has_left, memory_order_acquire) != 0 &&
            segment_rank_is_absent(segment, i)) {
            tdm__comm_segment_abort(segment, i, TDM__COMM_RANK_LEFT);
            return;
        }
    }
}

/* Tells the processor that this is a spin loop. */
static void cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Waits until the barrier completes or the group ends. Returns true if it completed. */
static bool segment_await_ranks(struct tdm__comm_segment *segment, int64_t deadline_ms)
{
    struct header *header = segment->header;
    uint64_t target = segment->arrivals * segment->ranks_count;
    uint32_t spins = 0;

    for (;;) {
        uint32_t seen = atomic_load_explicit(&header->wake_counter, memory_order_seq_cst);
        /* Acquire: pairs with the arrivals (for the slots) and with segment_set_aborted() (for
         * the end_reason). */
        uint64_t arrivals_and_aborted =
            atomic_load_explicit(&header->arrivals_and_aborted, memory_order_acquire);

        if ((arrivals_and_aborted & ~ABORTED_FLAG) >= target) {
            return true;
        }
        if ((arrivals_and_aborted & ABORTED_FLAG) != 0) {
            return false;
        }
        /* Spins for about a microsecond only, because other processes need the core. */
        if (spins < SPIN_ROUNDS) {
            spins++;
            cpu_relax();
            continue;
        }
        segment_check_left_ranks(segment);
        if (tdm__deadline_remaining_ms(deadline_ms) == 0) {
            segment_time_out(segment);
            continue;
        }
        segment_sleep(header, seen, deadline_ms);
    }
}

/* Fails after the group has ended because rank `other` is in another operation than `call`, that of
 * rank `rank`, which is this one, and says how they differ. If the group had ended before for
 * another reason, the error has that one. */
static tdm_status fail_mismatched(const struct tdm__comm_segment *segment, uint32_t other,
                                  const struct tdm__collective_op *others_call, uint32_t rank,
                                  const struct tdm__collective_op *call)
{
    uint32_t end_reason = atomic_load_explicit(&segment->header->end_reason, memory_order_relaxed);
    char how[TDM__OP_DIFFERENCE_BYTES];

    if (end_reason >> 16 != TDM__COMM_RANK_MISMATCHED) {
        return segment_fail_aborted(segment);
    }
    return tdm__fail(TDM_E_INVAL, "rank %u of %u %s: the group has ended and must be created again",
                     other, segment->ranks_count,
                     tdm__collective_op_difference(others_call, call, rank, how));
}

tdm_status tdm__comm_segment_barrier(struct tdm__comm_segment *segment, uint32_t rank,
                                     const struct tdm__collective_op *call, int64_t deadline_ms)
{
    struct header *header = segment->header;
    struct rank_state *own_state = &header->ranks[rank];
    uint32_t parity = (uint32_t)(segment->arrivals % 2);

    TDM_ASSERT(rank < segment->ranks_count);
    /* After the end of the group nothing is written: a slower rank may still compare the calls of
     * the last barrier that completed. */
    TDM_TRY(tdm__comm_segment_check(segment));
    own_state->calls[parity] = *call;
    segment->arrivals++;
    atomic_store_explicit(&own_state->arrivals, segment->arrivals, memory_order_relaxed);
    if (!segment_arrive(header, segment->arrivals * segment->ranks_count) ||
        !segment_await_ranks(segment, deadline_ms)) {
        return segment_fail_aborted(segment);
    }
    for (uint32_t i = 0; i < segment->ranks_count; i++) {
        if (!tdm__collective_op_equal(&header->ranks[i].calls[parity], call)) {
            tdm__comm_segment_abort(segment, i, TDM__COMM_RANK_MISMATCHED);
            return fail_mismatched(segment, i, &header->ranks[i].calls[parity], rank, call);
        }
    }
    return TDM_OK;
}
