/* memory_store.c - the reference filling of the store: sorted records in this process. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/memory_store.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/store/check.h"
#include "runtime/store/completion.h"
#include "runtime/store/watchers.h"
#include "tests/support/kept_clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

/* Every operation happens when it is called; only its answer waits for the loop.  So there is
 * no lost reply, and a commit through the interface needs no number. */

struct entry {
    char *key;  /* Key of the record (owned). */
    char *data; /* The value (owned); NULL if there is none. */
    size_t size_bytes;
    uint64_t version;
    bool has_lease;       /* Whether the record is that of a member. */
    int64_t lease_end_ms; /* End of the member's lease on the kept clock. */
    uint64_t renewals_count;
};

/* Outcome of a numbered commit. */
struct outcome {
    uint64_t number;
    tdm_status status;
    uint64_t version;
};

/* A process that numbers its commits. */
struct writer {
    LIST_ENTRY(writer) entry;
    char name[TDM__ID_TEXT_BYTES];
    uint64_t session;
    uint64_t lowest;
    struct outcome *outcomes; /* Array of the outcomes of commits (owned). */
    uint32_t outcomes_count;
};

struct memory_store {
    struct tdm__store store; /* first */
    struct tdm__store_completions *outcomes;
    struct tdm__watchers watchers;
    struct entry *entries; /* The records (owned), sorted by key. */
    uint32_t count;
    uint32_t capacity;
    uint64_t last_version;
    LIST_HEAD(, writer) writers;
    /* For each element of `families`, a version since which no record of the family was removed. */
    uint64_t removed[2];
    uint64_t members_epoch;
    uint64_t generation;
    uint32_t server; /* Number of the pretended server, which memory_store_replace() changes. */
    struct kept_clock clock;
};

/* Prefixes whose changes can be read alone, as with Redis. */
static const char *const families[] = {"node/", "free/"};
enum { FAMILIES_COUNT = sizeof(families) / sizeof(families[0]), FAMILY_BYTES = 5 };

/* ---- writers ---------------------------------------------------------------------------- */

static struct writer *find_writer(const struct memory_store *memory, const char *name)
{
    struct writer *writer;

    LIST_FOREACH(writer, &memory->writers, entry)
    {
        if (strcmp(writer->name, name) == 0) {
            return writer;
        }
    }
    return NULL;
}

static void forget_writer(struct writer *writer)
{
    if (writer != NULL) {
        LIST_REMOVE(writer, entry);
        free(writer->outcomes);
        free(writer);
    }
}

/* The outcomes of a node go with its record. */
static void forget_writer_of(struct memory_store *memory, const char *key)
{
    if (strncmp(key, "node/", 5) == 0) {
        forget_writer(find_writer(memory, key + 5));
    }
}

static void drop_outcomes(struct writer *writer, uint64_t lowest)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < writer->outcomes_count; i++) {
        if (writer->outcomes[i].number >= lowest) {
            writer->outcomes[kept++] = writer->outcomes[i];
        }
    }
    writer->outcomes_count = kept;
    writer->lowest = lowest;
}

/* ---- entries ---------------------------------------------------------------------------- */

/* The first entry whose key is not before `key`. */
static uint32_t lower_bound(const struct memory_store *memory, const char *key)
{
    uint32_t low = 0;
    uint32_t high = memory->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (strcmp(memory->entries[middle].key, key) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static struct entry *find_entry(const struct memory_store *memory, const char *key)
{
    uint32_t at = lower_bound(memory, key);

    if (at < memory->count && strcmp(memory->entries[at].key, key) == 0) {
        return &memory->entries[at];
    }
    return NULL;
}

static void remove_entry(struct memory_store *memory, struct entry *entry)
{
    uint32_t at = (uint32_t)(entry - memory->entries);

    forget_writer_of(memory, entry->key);
    for (uint32_t i = 0; i < FAMILIES_COUNT; i++) {
        if (strncmp(entry->key, families[i], FAMILY_BYTES) == 0) {
            memory->removed[i] = memory->last_version + 1;
        }
    }
    if (entry->has_lease) {
        memory->members_epoch = ++memory->last_version;
    }
    free(entry->key);
    free(entry->data);
    memory->count--;
    memmove(entry, entry + 1, (memory->count - at) * sizeof(*entry));
}

/* An empty entry of this key, where there was none.  Room was made before. */
static struct entry *insert_entry(struct memory_store *memory, char *key)
{
    uint32_t at = lower_bound(memory, key);
    struct entry *entry = &memory->entries[at];

    memmove(entry + 1, entry, (memory->count - at) * sizeof(*entry));
    memory->count++;
    *entry = (struct entry){.key = key};
    return entry;
}

/* ---- read ------------------------------------------------------------------------------- */

/* Whether a read of PREFIX*>VERSION returns only the records put since. */
static bool knows_changes(const struct memory_store *memory, const char *pattern,
                          size_t prefix_bytes, uint64_t since)
{
    for (uint32_t i = 0; i < FAMILIES_COUNT; i++) {
        if (prefix_bytes == FAMILY_BYTES && strncmp(pattern, families[i], FAMILY_BYTES) == 0) {
            return since > 0 && since <= memory->last_version && memory->removed[i] <= since &&
                   memory->generation <= since;
        }
    }
    return false;
}

/* Whether a read of the pattern returns the entry. */
static bool pattern_returns(const struct memory_store *memory, const char *pattern,
                            const struct entry *entry)
{
    size_t bytes;
    uint64_t since;

    if (!tdm__store_matches(pattern, entry->key)) {
        return false;
    }
    return !tdm__store_is_changes(pattern, &bytes, &since) || entry->version > since ||
           !knows_changes(memory, pattern, bytes, since);
}

/* Appends the record PREFIX* if the pattern is PREFIX*>VERSION. */
static void append_state(const struct memory_store *memory, const char *pattern,
                         struct tdm__store_records *records)
{
    char key[TDM__STORE_KEY_BYTES_MAX + 2];
    size_t bytes;
    uint64_t since;
    const char *text;

    if (tdm__store_is_changes(pattern, &bytes, &since)) {
        (void)snprintf(key, sizeof(key), "%.*s*", (int)bytes, pattern);
        text = knows_changes(memory, pattern, bytes, since) ? TDM__STORE_CHANGES : TDM__STORE_ALL;
        tdm__store_records_append(records, key, strlen(key),
                                  memory->last_version > 0 ? memory->last_version : 1,
                                  (struct tdm_bytes){text, strlen(text)});
    }
}

static tdm_status snapshot(const struct memory_store *memory, const char *const *patterns,
                           uint32_t patterns_count, struct tdm__store_records **records_out)
{
    struct tdm__store_records *records = NULL;
    size_t payload_bytes = 0;

    for (uint32_t i = 0; i < memory->count; i++) {
        payload_bytes += strlen(memory->entries[i].key) + memory->entries[i].size_bytes;
    }
    for (uint32_t k = 0; k < patterns_count; k++) {
        payload_bytes += strlen(patterns[k]) + sizeof(TDM__STORE_CHANGES);
    }
    TDM_TRY(tdm__store_records_create(memory->count + patterns_count, payload_bytes, &records));
    for (uint32_t k = 0; k < patterns_count; k++) {
        append_state(memory, patterns[k], records);
    }
    for (uint32_t i = 0; i < memory->count; i++) {
        const struct entry *entry = &memory->entries[i];
        uint32_t k = 0;

        while (k < patterns_count && !pattern_returns(memory, patterns[k], entry)) {
            k++;
        }
        if (k < patterns_count) {
            tdm__store_records_append(records, entry->key, strlen(entry->key), entry->version,
                                      (struct tdm_bytes){entry->data, entry->size_bytes});
        }
    }
    tdm__store_records_sort(records);
    *records_out = records;
    return TDM_OK;
}

static void memory_read(struct tdm__store *store, const char *const *patterns,
                        uint32_t patterns_count, int64_t deadline_ms, tdm__store_read_fn *fn,
                        void *arg)
{
    struct memory_store *memory = (struct memory_store *)store;
    struct tdm__store_completion *outcome = tdm__store_completion_of_read(fn, arg);
    struct tdm__store_records *records = NULL;
    tdm_status status = tdm__store_check_patterns(patterns, patterns_count);

    (void)deadline_ms; /* The reply is available at once. */
    if (status == TDM_OK) {
        status = snapshot(memory, patterns, patterns_count, &records);
    }
    tdm__store_completions_add(memory->outcomes, outcome, status, records);
}

/* ---- commit ----------------------------------------------------------------------------- */

/* Returns whether the record of a write has another version than the commit expects. */
static bool is_loser(const struct memory_store *memory, const struct tdm__store_write *write)
{
    const struct entry *entry = find_entry(memory, write->key);
    uint64_t version = entry != NULL ? entry->version : TDM__VERSION_NONE;

    return write->kind != TDM__STORE_CHECK_GENERATION && write->version != TDM__VERSION_ANY &&
           write->version != version;
}

/* Returns the records over which a commit is lost; NULL if there are none. */
static struct tdm__store_records *find_losers(const struct memory_store *memory,
                                              const struct tdm__store_write *writes,
                                              uint32_t writes_count)
{
    struct tdm__store_record *losers = calloc(writes_count + 1u, sizeof(*losers));
    struct tdm__store_records *records = NULL;
    uint32_t count = 0;

    TDM_ASSERT(losers != NULL);
    for (uint32_t i = 0; i < writes_count; i++) {
        const struct entry *entry = find_entry(memory, writes[i].key);

        if (is_loser(memory, &writes[i])) {
            losers[count++] = (struct tdm__store_record){
                .key = writes[i].key,
                .version = entry != NULL ? entry->version : TDM__VERSION_NONE,
                .bytes = {entry != NULL ? entry->data : NULL,
                          entry != NULL ? entry->size_bytes : 0}};
        }
    }
    if (count > 0) {
        TDM_ASSERT(tdm__store_records_copy(losers, count, &records) == TDM_OK);
        tdm__store_records_sort(records);
    }
    free(losers);
    return records;
}

static tdm_status check_versions(const struct memory_store *memory,
                                 const struct tdm__store_write *writes, uint32_t writes_count)
{
    for (uint32_t i = 0; i < writes_count; i++) {
        if (is_loser(memory, &writes[i])) {
            return tdm__fail(TDM_E_CONFLICT, "%s", writes[i].key);
        }
    }
    for (uint32_t i = 0; i < writes_count; i++) {
        if (writes[i].kind == TDM__STORE_CHECK_LOST && kept_clock_is_held(&memory->clock)) {
            return tdm__fail(TDM_E_AGAIN, "%s does not count as lost yet", writes[i].key);
        }
        if (writes[i].kind == TDM__STORE_CHECK_GENERATION &&
            (writes[i].version != memory->generation || memory->clock.server != memory->server)) {
            return tdm__fail(TDM_E_AGAIN, "what the store says of %s may be old", writes[i].key);
        }
    }
    return TDM_OK;
}

/* What a put needs, allocated before anything is changed. */
struct preallocated_entry {
    char *key;
    char *data;
};

static void free_preallocated_entries(struct preallocated_entry *preallocated_entries,
                                      uint32_t preallocated_count)
{
    for (uint32_t i = 0; i < preallocated_count; i++) {
        free(preallocated_entries[i].key);
        free(preallocated_entries[i].data);
    }
    free(preallocated_entries);
}

static tdm_status prepare(struct memory_store *memory, const struct tdm__store_write *writes,
                          uint32_t writes_count, struct preallocated_entry **preallocated_out)
{
    uint32_t capacity = memory->count + writes_count;
    struct preallocated_entry *preallocated_entries =
        calloc(writes_count + 1u, sizeof(*preallocated_entries));
    struct entry *entries;
    bool ok = preallocated_entries != NULL;

    for (uint32_t i = 0; ok && i < writes_count; i++) {
        const struct tdm_bytes *bytes = &writes[i].bytes;

        if (writes[i].kind == TDM__STORE_PUT) {
            preallocated_entries[i].key = strdup(writes[i].key);
            preallocated_entries[i].data = malloc(bytes->size_bytes + 1);
            ok = preallocated_entries[i].key != NULL && preallocated_entries[i].data != NULL;
        }
        if (ok && writes[i].kind == TDM__STORE_PUT && bytes->size_bytes > 0) {
            memcpy(preallocated_entries[i].data, bytes->data, bytes->size_bytes);
        }
    }
    if (ok && capacity > memory->capacity) {
        entries = realloc(memory->entries, 2 * sizeof(*entries) * capacity);
        ok = entries != NULL;
        if (ok) {
            memory->entries = entries;
            memory->capacity = 2u * capacity;
        }
    }
    if (!ok) {
        if (preallocated_entries != NULL) {
            free_preallocated_entries(preallocated_entries, writes_count);
        }
        return tdm__fail(TDM_E_NOMEM, "commit of %u writes", writes_count);
    }
    *preallocated_out = preallocated_entries;
    return TDM_OK;
}

static void apply_put(struct memory_store *memory, const struct tdm__store_write *write,
                      struct preallocated_entry *spare)
{
    struct entry *entry = find_entry(memory, write->key);

    if (entry == NULL) {
        entry = insert_entry(memory, spare->key);
        spare->key = NULL;
    }
    free(entry->data);
    entry->data = spare->data;
    spare->data = NULL;
    entry->size_bytes = write->bytes.size_bytes;
    entry->version = memory->last_version;
    if (write->lease_ms > 0) {
        kept_clock_advance(&memory->clock, tdm__clock_ms(), TDM__STORE_CLOCK_STEP_MS);
        entry->has_lease = true;
        entry->lease_end_ms = memory->clock.now + write->lease_ms;
        memory->members_epoch = ++memory->last_version;
    }
    tdm__watchers_notify_key(&memory->watchers, memory->outcomes, write->key);
}

static void apply(struct memory_store *memory, const struct tdm__store_write *write,
                  struct preallocated_entry *spare)
{
    struct entry *entry = find_entry(memory, write->key);

    switch (write->kind) {
    case TDM__STORE_PUT:
        apply_put(memory, write, spare);
        break;
    case TDM__STORE_DELETE:
        if (entry != NULL) {
            remove_entry(memory, entry);
            tdm__watchers_notify_key(&memory->watchers, memory->outcomes, write->key);
        }
        break;
    case TDM__STORE_CHECK_LOST:
    case TDM__STORE_CHECK_GENERATION:
    case TDM__STORE_CHECK_VERSION:
        break;
    }
}

/* The records of one commit share the version that it takes if it puts any. */
static uint64_t take_version(struct memory_store *memory, const struct tdm__store_write *writes,
                             uint32_t writes_count)
{
    for (uint32_t i = 0; i < writes_count; i++) {
        if (writes[i].kind == TDM__STORE_PUT) {
            return ++memory->last_version;
        }
    }
    return TDM__VERSION_NONE;
}

static tdm_status commit_now(struct memory_store *memory, const struct tdm__store_write *writes,
                             uint32_t writes_count, uint64_t *version_out)
{
    struct preallocated_entry *preallocated_entries = NULL;

    TDM_TRY(tdm__store_check_writes(writes, writes_count));
    TDM_TRY(check_versions(memory, writes, writes_count));
    TDM_TRY(prepare(memory, writes, writes_count, &preallocated_entries));
    *version_out = take_version(memory, writes, writes_count);
    for (uint32_t i = 0; i < writes_count; i++) {
        apply(memory, &writes[i], &preallocated_entries[i]);
    }
    free_preallocated_entries(preallocated_entries, writes_count);
    return TDM_OK;
}

static void memory_commit(struct tdm__store *store, const struct tdm__store_write *writes,
                          uint32_t writes_count, int64_t deadline_ms, tdm__store_commit_fn *fn,
                          void *arg)
{
    struct memory_store *memory = (struct memory_store *)store;
    struct tdm__store_completion *outcome = tdm__store_completion_of_commit(fn, arg);
    uint64_t version = TDM__VERSION_NONE;
    tdm_status status = commit_now(memory, writes, writes_count, &version);

    (void)deadline_ms;
    tdm__store_completion_set_version(outcome, version);
    tdm__store_completions_add(memory->outcomes, outcome, status,
                               status == TDM_E_CONFLICT ? find_losers(memory, writes, writes_count)
                                                        : NULL);
}

uint64_t memory_store_open_session(struct tdm__store *store, const char *name, uint64_t lowest)
{
    struct memory_store *memory = (struct memory_store *)store;
    struct writer *writer = calloc(1, sizeof(*writer));

    TDM_ASSERT(writer != NULL);
    forget_writer(find_writer(memory, name));
    (void)snprintf(writer->name, sizeof(writer->name), "%s", name);
    writer->session = ++memory->last_version;
    writer->lowest = lowest;
    LIST_INSERT_HEAD(&memory->writers, writer, entry);
    return writer->session;
}

/* Finds the outcome of a commit that was delivered before; NULL if there is none. */
static const struct outcome *find_outcome(const struct writer *writer, uint64_t number)
{
    for (uint32_t i = 0; i < writer->outcomes_count; i++) {
        if (writer->outcomes[i].number == number) {
            return &writer->outcomes[i];
        }
    }
    return NULL;
}

static void keep_outcome(struct writer *writer, const struct outcome *outcome)
{
    uint32_t count = writer->outcomes_count;

    writer->outcomes = realloc(writer->outcomes, (count + 1) * sizeof(*outcome));
    TDM_ASSERT(writer->outcomes != NULL);
    writer->outcomes[count] = *outcome;
    writer->outcomes_count++;
}

tdm_status memory_store_deliver(struct tdm__store *store, const char *name,
                                const struct tdm__redis_commit_stamp *stamp,
                                const struct tdm__store_write *writes, uint32_t writes_count,
                                uint64_t *version_out)
{
    struct memory_store *memory = (struct memory_store *)store;
    struct writer *writer = find_writer(memory, name);
    struct outcome outcome = {.number = stamp->number};
    const struct outcome *first;

    *version_out = TDM__VERSION_NONE;
    if (writer == NULL || writer->session != stamp->session) {
        return tdm__fail(TDM_E_NOT_FOUND, "writer %s has no such session", name);
    }
    first = find_outcome(writer, stamp->number);
    if (first != NULL) {
        *version_out = first->version;
        return first->status;
    }
    if (stamp->number < writer->lowest) {
        return tdm__fail(TDM_E_STATE, "the number is settled");
    }
    if (stamp->lowest > writer->lowest) {
        drop_outcomes(writer, stamp->lowest);
    }
    outcome.status = commit_now(memory, writes, writes_count, &outcome.version);
    writer = find_writer(memory, name); /* The commit may have removed the record of its node. */
    if (writer != NULL) {
        keep_outcome(writer, &outcome);
    }
    *version_out = outcome.version;
    return outcome.status;
}

uint32_t memory_store_outcomes_count(const struct tdm__store *store, const char *name)
{
    const struct writer *writer = find_writer((const struct memory_store *)store, name);

    return writer == NULL ? 0 : writer->outcomes_count;
}

/* ---- renewals --------------------------------------------------------------------------- */

static void take_over(struct memory_store *memory, int64_t grace_ms)
{
    for (uint32_t i = memory->count; i > 0; i--) {
        struct entry *entry = &memory->entries[i - 1];

        if (entry->has_lease &&
            kept_clock_takes_over(&memory->clock, entry->lease_end_ms, grace_ms)) {
            tdm__watchers_notify_key(&memory->watchers, memory->outcomes, entry->key);
            remove_entry(memory, entry);
        }
    }
}

static tdm_status renew_now(struct memory_store *memory, const struct tdm__store_renewal *renewal,
                            struct tdm__store_renewed *renewed_out,
                            struct tdm__store_records **members_out)
{
    struct entry *entry = find_entry(memory, renewal->key);
    const char *pattern = "node/*";
    bool has_lost_changes;

    if (entry == NULL) {
        return tdm__fail(TDM_E_CONFLICT, "the store has no record of this member");
    }
    has_lost_changes = entry->renewals_count < renewal->renewals_count &&
                       (renewal->generation == 0 || renewal->generation == memory->generation);
    kept_clock_advance(&memory->clock, tdm__clock_ms(), TDM__STORE_CLOCK_STEP_MS);
    if (kept_clock_check_generation(&memory->clock, memory->server,
                                    renewal->lease_ms + renewal->grace_ms + 1, has_lost_changes)) {
        memory->generation = ++memory->last_version;
    }
    entry->renewals_count =
        1 + (entry->renewals_count < renewal->renewals_count ? renewal->renewals_count
                                                             : entry->renewals_count);
    entry->lease_end_ms = memory->clock.now + renewal->lease_ms;
    *renewed_out = (struct tdm__store_renewed){.epoch = entry->version,
                                               .renewals_count = entry->renewals_count};
    take_over(memory, renewal->grace_ms);
    renewed_out->clock_ms = (uint64_t)memory->clock.now;
    renewed_out->members_epoch = memory->members_epoch;
    renewed_out->generation = memory->generation;
    renewed_out->held_ms = kept_clock_is_held(&memory->clock)
                               ? (uint64_t)(memory->clock.held_until - memory->clock.now)
                               : 0;
    return memory->members_epoch == renewal->members_epoch
               ? TDM_OK
               : snapshot(memory, &pattern, 1, members_out);
}

static void memory_renew(struct tdm__store *store, const struct tdm__store_renewal *renewal,
                         int64_t deadline_ms, tdm__store_renewed_fn *fn, void *arg)
{
    struct memory_store *memory = (struct memory_store *)store;
    struct tdm__store_completion *outcome = tdm__store_completion_of_renewal(fn, arg);
    struct tdm__store_renewed renewed;
    struct tdm__store_records *members = NULL;
    tdm_status status = renew_now(memory, renewal, &renewed, &members);

    (void)deadline_ms;
    if (status == TDM_OK) {
        tdm__store_completion_set_renewed(outcome, &renewed);
    }
    tdm__store_completions_add(memory->outcomes, outcome, status, members);
}

void memory_store_replace(struct tdm__store *store)
{
    ((struct memory_store *)store)->server++;
}

uint64_t memory_store_new_generation(struct tdm__store *store)
{
    struct memory_store *memory = (struct memory_store *)store;

    memory_store_replace(store);
    (void)kept_clock_check_generation(&memory->clock, memory->server, 0, false);
    memory->generation = ++memory->last_version;
    return memory->generation;
}

tdm_status memory_store_read(const struct tdm__store *store, const char *const *patterns,
                             uint32_t patterns_count, struct tdm__store_records **records_out)
{
    TDM_TRY(tdm__store_check_patterns(patterns, patterns_count));
    return snapshot((const struct memory_store *)store, patterns, patterns_count, records_out);
}

tdm_status memory_store_renew(struct tdm__store *store, const struct tdm__store_renewal *renewal,
                              struct tdm__store_renewed *renewed_out,
                              struct tdm__store_records **members_out)
{
    *members_out = NULL;
    return renew_now((struct memory_store *)store, renewal, renewed_out, members_out);
}

static void remove_all(struct memory_store *memory)
{
    while (memory->count > 0) {
        remove_entry(memory, &memory->entries[memory->count - 1]);
    }
    while (!LIST_EMPTY(&memory->writers)) {
        forget_writer(LIST_FIRST(&memory->writers));
    }
}

void memory_store_forget(struct tdm__store *store, const char *prefix)
{
    struct memory_store *memory = (struct memory_store *)store;

    for (uint32_t i = memory->count; i > 0; i--) {
        if (strncmp(memory->entries[i - 1].key, prefix, strlen(prefix)) == 0) {
            remove_entry(memory, &memory->entries[i - 1]);
        }
    }
}

void memory_store_clear(struct tdm__store *store)
{
    struct memory_store *memory = (struct memory_store *)store;

    remove_all(memory);
    memory->server++;
    memory->clock = (struct kept_clock){.now = 0};
}

/* ---- the table -------------------------------------------------------------------------- */

static tdm_status memory_watch(struct tdm__store *store, const char *prefix,
                               tdm__store_changed_fn *fn, void *arg)
{
    struct memory_store *memory = (struct memory_store *)store;

    return tdm__watchers_add(&memory->watchers, prefix, fn, arg);
}

static void memory_close(struct tdm__store *store)
{
    struct memory_store *memory = (struct memory_store *)store;

    store->closing = true;
    tdm__store_completions_destroy(memory->outcomes);
    tdm__watchers_fini(&memory->watchers);
    remove_all(memory);
    free(memory->entries);
    free(memory);
}

static const struct tdm__store_ops memory_ops = {
    .name = "memory",
    .close = memory_close,
    .read = memory_read,
    .commit = memory_commit,
    .watch = memory_watch,
    .renew = memory_renew,
};

tdm_status tdm__store_memory_open(struct tdm__loop *loop, struct tdm__store **store_out)
{
    struct memory_store *memory = calloc(1, sizeof(*memory));
    tdm_status status;

    if (memory == NULL) {
        return tdm__fail(TDM_E_NOMEM, "memory store");
    }
    memory->store.ops = &memory_ops;
    memory->server = 1;
    /* No generation has changed for a long time. */
    (void)kept_clock_check_generation(&memory->clock, memory->server, 0, false);
    memory->generation = ++memory->last_version;
    status = tdm__store_completions_create(loop, &memory->outcomes);
    if (status != TDM_OK) {
        free(memory);
        return status;
    }
    *store_out = &memory->store;
    return TDM_OK;
}
