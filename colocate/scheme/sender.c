/* sender.c - the sending end of a scheme: its life, and one version after the other. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/scheme/sender.h"

#include "colocate/scheme/board.h"
#include "colocate/scheme/receiver.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TIMEOUT_MS = 60000, BUCKET_BYTES = 16 << 20, LOOK_MS = 200, DECIDE_MS = 10000 };
enum { ALIGNMENT = 64, WORD_BYTES = 8 };

/* ---- create ----------------------------------------------------------------------------- */

static tdm_status list_tensors(tdm_weights_sender *sender,
                               const struct tdm_weights_tensor *tensors, uint32_t count,
                               uint64_t bucket_bytes)
{
    struct tdm_tensor_info *infos = calloc(count + 1, sizeof(*infos));
    struct tdm__manifest *manifest;
    tdm_status status;

    sender->addresses = calloc(count + 1, sizeof(*sender->addresses));
    sender->sums = calloc(count + 1, sizeof(*sender->sums));
    if (infos == NULL || sender->addresses == NULL || sender->sums == NULL) {
        free(infos);
        return tdm__fail(TDM_E_NOMEM, "a sender of %u tensors", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        infos[i] = tensors[i].info;
        sender->addresses[i] = tensors[i].address;
    }
    status = tdm__manifest_create(infos, count, &manifest);
    free(infos);
    TDM_TRY(status);
    return tdm__contents_create(manifest, bucket_bytes, &sender->contents);
}

static tdm_status check_tensors(const tdm_weights_sender *sender,
                                const struct tdm_weights_tensor *tensors, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (tensors[i].shards_count > 1) {
            return tdm__fail(TDM_E_INVAL, "tensor %s: a sender has whole ones, not 1 of %u",
                             tensors[i].info.name, tensors[i].shards_count);
        }
        if (tensors[i].address == NULL && sender->relay_of == NULL) {
            return tdm__fail(TDM_E_INVAL, "tensor %s has no address", tensors[i].info.name);
        }
    }
    return TDM_OK;
}

static tdm_status list_modules(tdm_weights_sender *sender, tdm_actor *const *modules,
                               uint32_t count)
{
    if (count > TDM_WEIGHTS_RECEIVERS_MAX || (count > 0) != sender->carrier->calls) {
        return tdm__fail(TDM_E_INVAL, "%u modules for the scheme %s", count,
                         sender->carrier->name);
    }
    sender->modules = calloc(count + 1, sizeof(tdm_actor *));
    sender->modules_refs = calloc(count + 1, sizeof(tdm_ref *));
    if (sender->modules == NULL || sender->modules_refs == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u modules", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        sender->modules[i] = modules[i];
    }
    sender->modules_count = count;
    return TDM_OK;
}

static tdm_status make_buffers(tdm_weights_sender *sender)
{
    uint64_t bytes = sender->contents.plan->bucket_bytes_max;

    sender->group_members = calloc(TDM_WEIGHTS_RECEIVERS_MAX, sizeof(*sender->group_members));
    if (posix_memalign(&sender->image, ALIGNMENT, bytes + ALIGNMENT) != 0 ||
        sender->group_members == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a bucket of %llu bytes", (unsigned long long)bytes);
    }
    memset(sender->image, 0, bytes + ALIGNMENT); /* also what lies between tensors travels */
    return TDM_OK;
}

static tdm_status make(tdm_weights_sender *sender,
                       const struct tdm_weights_sender_options *options)
{
    const struct tdm_weights_tensor *tensors = options->tensors;
    uint32_t count = options->tensors_count;

    sender->carrier = tdm__carrier_of(options->scheme);
    if (sender->carrier == NULL) {
        return tdm__fail(TDM_E_INVAL, "scheme %d is none", (int)options->scheme);
    }
    if (options->relay_of != NULL) {
        if (strcmp(options->relay_of->round.model, sender->round.model) == 0) {
            return tdm__fail(TDM_E_INVAL, "a relay of %s sends it under another id",
                             sender->round.model);
        }
        tensors = tdm__receiver_tensors(options->relay_of, &count);
    }
    if (options->receivers_count > TDM_WEIGHTS_RECEIVERS_MAX) {
        return tdm__fail(TDM_E_LIMIT, "%u receivers, at most %d", options->receivers_count,
                         TDM_WEIGHTS_RECEIVERS_MAX);
    }
    TDM_TRY(check_tensors(sender, tensors, count));
    TDM_TRY(list_tensors(sender, tensors, count,
                         options->bucket_bytes == 0 ? BUCKET_BYTES : options->bucket_bytes));
    TDM_TRY(list_modules(sender, options->modules, options->modules_count));
    return make_buffers(sender);
}

/* Frees what was made; nothing runs any more. */
static void destroy(tdm_weights_sender *sender)
{
    for (uint32_t i = 0; i < sender->modules_count; i++) {
        tdm_ref_release(sender->modules_refs[i]);
    }
    tdm_group_leave(sender->group);
    tdm_actor_destroy(sender->board);
    tdm__contents_fini(&sender->contents);
    free(sender->addresses);
    free(sender->image);
    free(sender->sums);
    free(sender->modules);
    free(sender->modules_refs);
    free(sender->group_members);
    (void)pthread_mutex_destroy(&sender->mutex);
    (void)pthread_cond_destroy(&sender->changed);
    free(sender);
}

static void init_locks(tdm_weights_sender *sender)
{
    pthread_condattr_t attributes;

    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&sender->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    (void)pthread_mutex_init(&sender->mutex, NULL);
}

tdm_status tdm_weights_sender_create(tdm_runtime *runtime,
                                     const struct tdm_weights_sender_options *options,
                                     tdm_weights_sender **sender_out)
{
    tdm_weights_sender *sender = calloc(1, sizeof(*sender));
    tdm_status status;

    if (sender == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a sender of weights");
    }
    init_locks(sender);
    sender->scheme = options->scheme;
    sender->relay_of = options->relay_of;
    sender->receivers_count = options->receivers_count == 0 ? 1 : options->receivers_count;
    sender->timeout_ms = options->timeout_ms == 0 ? TIMEOUT_MS : options->timeout_ms;
    status = tdm__round_init(&sender->round, runtime, options->model);
    if (status == TDM_OK) {
        status = make(sender, options);
    }
    if (status != TDM_OK) {
        destroy(sender);
        return status;
    }
    *sender_out = sender;
    return TDM_OK;
}

/* ---- who takes part --------------------------------------------------------------------- */

static tdm_status read_member(const tdm_value *value, struct tdm__member *member)
{
    struct tdm_bytes id = tdm_value_bytes(tdm_value_at(value, 0));

    if (id.size_bytes != sizeof(member->actor.bytes)) {
        return tdm__fail(TDM_E_PROTOCOL, "a receiver whose id has %zu bytes", id.size_bytes);
    }
    memcpy(member->actor.bytes, id.data, sizeof(member->actor.bytes));
    member->incarnation = tdm_value_uint(tdm_value_at(value, 1), 0);
    return TDM_OK;
}

/* A note of a receiver is (id b, incarnation u, is it there?). */
static tdm_status add_to_party(tdm_weights_sender *sender, const tdm_value *note)
{
    struct tdm__party *party = &sender->party;
    struct tdm__member member;

    TDM_TRY(read_member(note, &member));
    if (party->members_count == TDM_WEIGHTS_RECEIVERS_MAX ||
        party->dead_count == TDM_WEIGHTS_RECEIVERS_MAX) {
        return tdm__fail(TDM_E_LIMIT, "more than %d receivers of %s", TDM_WEIGHTS_RECEIVERS_MAX,
                         sender->round.model);
    }
    if (tdm_value_bool(tdm_value_at(note, 2), 0) &&
        tdm__round_check_alive(&sender->round, &member) == TDM_OK) {
        party->members[party->members_count++] = member;
    } else {
        party->dead[party->dead_count++] = member; /* gone, or no receiver any more */
    }
    return TDM_OK;
}

static tdm_status gather_party(tdm_weights_sender *sender, int64_t deadline_ms)
{
    const tdm_value *notes;
    tdm_ref *ref;
    tdm_status status;

    sender->party.members_count = 0;
    sender->party.dead_count = 0;
    TDM_TRY(tdm__board_wait(sender->board, "join/", "", 0, &ref));
    status = tdm_get_value(ref, tdm__deadline_left(deadline_ms), &notes);
    for (uint32_t i = 0; status == TDM_OK && i < tdm_value_count(notes); i++) {
        status = add_to_party(sender, tdm_value_at(tdm_value_at(notes, i), 1));
    }
    tdm_ref_release(ref);
    TDM_TRY(status);
    if (sender->party.members_count == 0) {
        return tdm__fail(TDM_E_NOT_FOUND, "%s has no receiver; %u have gone",
                         sender->round.model, sender->party.dead_count);
    }
    return TDM_OK;
}

static uint32_t find_member(const struct tdm__party *party, const struct tdm__member *member)
{
    uint32_t i = 0;

    while (i < party->members_count &&
           (party->members[i].incarnation != member->incarnation ||
            !tdm__id_equal(&party->members[i].actor, &member->actor))) {
        i++;
    }
    return i;
}

/* ---- their reports ---------------------------------------------------------------------- */

/* Who of the party has reported what: a note of a receiver's report is (id b, incarnation u,
 * status i, text s). */
struct reports {
    bool came[TDM_WEIGHTS_RECEIVERS_MAX];
    uint32_t count;
};

static tdm_status read_reports(const tdm_weights_sender *sender, const tdm_value *notes,
                               struct reports *reports)
{
    char text[TDM__ROUND_MEMBER_TEXT_BYTES];

    for (uint32_t i = 0; i < tdm_value_count(notes); i++) {
        const tdm_value *note = tdm_value_at(tdm_value_at(notes, i), 1);
        tdm_status failed =
            (tdm_status)tdm_value_int(tdm_value_at(note, 2), (int64_t)TDM_E_PROTOCOL);
        struct tdm__member member;
        uint32_t index;

        TDM_TRY(read_member(note, &member));
        index = find_member(&sender->party, &member);
        if (index == sender->party.members_count) {
            continue;
        }
        if (failed != TDM_OK) {
            return tdm__fail(failed, "%s: %s", tdm__round_member_text(&member, text),
                             tdm_value_string(tdm_value_at(note, 3), ""));
        }
        reports->count += reports->came[index] ? 0 : 1;
        reports->came[index] = true;
    }
    return TDM_OK;
}

/* Moves those of the party that have died to its dead; TDM_E_ACTOR_DIED names the last. */
static tdm_status find_dead(tdm_weights_sender *sender, const struct reports *reports)
{
    struct tdm__party *party = &sender->party;
    tdm_status status = TDM_OK;

    for (uint32_t i = 0; i < party->members_count; i++) {
        bool known = party->dead_count == TDM_WEIGHTS_RECEIVERS_MAX ||
                     (reports != NULL && reports->came[i]);

        if (!known && tdm__round_check_alive(&sender->round, &party->members[i]) != TDM_OK) {
            party->dead[party->dead_count++] = party->members[i];
            status = TDM_E_ACTOR_DIED;
        }
    }
    return status;
}

static tdm_status nobody_came(const tdm_weights_sender *sender, const struct reports *reports,
                              const char *what)
{
    char text[TDM__ROUND_MEMBER_TEXT_BYTES];
    uint32_t i = 0;

    while (reports->came[i]) {
        i++;
    }
    return tdm__fail(TDM_E_TIMEOUT, "%s has not %s epoch %llu of %s in time: %u of %u have",
                     tdm__round_member_text(&sender->party.members[i], text), what,
                     (unsigned long long)sender->epoch, sender->round.model, reports->count,
                     sender->party.members_count);
}

/* Waits for one more report, and looks now and then whether its author still lives. */
static tdm_status await_one_more(tdm_weights_sender *sender, const char *key,
                                 struct reports *reports, int64_t deadline_ms)
{
    const tdm_value *notes;
    tdm_status status;
    tdm_ref *ref;

    TDM_TRY(tdm__board_wait(sender->board, key, "", reports->count + 1, &ref));
    do {
        int64_t left_ms = tdm__deadline_left(deadline_ms);

        status =
            tdm_get_value(ref, left_ms < 0 || left_ms > LOOK_MS ? LOOK_MS : left_ms, &notes);
        if (status == TDM_E_TIMEOUT && find_dead(sender, reports) != TDM_OK) {
            status = TDM_E_ACTOR_DIED;
        }
    } while (status == TDM_E_TIMEOUT && tdm__deadline_left(deadline_ms) != 0);
    if (status == TDM_OK) {
        status = read_reports(sender, notes, reports);
    } else {
        (void)tdm_cancel(ref, 0);
    }
    tdm_ref_release(ref);
    return status;
}

static tdm_status await_all(tdm_weights_sender *sender, const char *what, const char *done,
                            int64_t deadline_ms)
{
    char key[TDM__ROUND_KEY_BYTES];
    struct reports reports = {.count = 0};
    tdm_status status = TDM_OK;

    (void)tdm__round_key(sender->epoch, what, key);
    while (status == TDM_OK && reports.count < sender->party.members_count) {
        status = await_one_more(sender, key, &reports, deadline_ms);
    }
    return status == TDM_E_TIMEOUT ? nobody_came(sender, &reports, done) : status;
}

/* ---- the steps -------------------------------------------------------------------------- */

/* A version_floor keeps a relay's numbers at least at those of what it relays. */
static tdm_status begin(tdm_weights_sender *sender, uint64_t number, int64_t deadline_ms)
{
    struct tdm__version_request request = {.kind = TDM__VERSION_READ};
    const struct tdm__party *party = &sender->party;
    struct tdm__version_answer answer;
    bool committed;

    if (sender->undecided) { /* the store was away */
        request.proposal = TDM__UPDATE_ABORTED;
        TDM_TRY(tdm__round_decide(&sender->round, sender->epoch, &request, deadline_ms,
                                  &committed));
        sender->undecided = false;
        request.kind = TDM__VERSION_READ;
    }
    TDM_TRY(tdm__round_ask(&sender->round, &request, deadline_ms, &answer));
    request = (struct tdm__version_request){
        .kind = TDM__VERSION_BEGIN,
        .update = tdm__round_update(&sender->round, answer.epoch + 1),
        .base = answer.version,
        .version_floor = number == 0 ? 0 : number - 1,
        .source = {.actor = party->members[0].actor, .incarnation = 1},
        .members = party->members,
        .members_count = party->members_count,
        .dead = party->dead,
        .dead_count = party->dead_count};
    TDM_TRY(tdm__round_ask(&sender->round, &request, deadline_ms, &answer));
    sender->epoch = answer.epoch;
    sender->version_begun = answer.update_version;
    sender->undecided = true;
    return TDM_OK;
}

static bool group_is_current(const tdm_weights_sender *sender)
{
    const struct tdm__party *party = &sender->party;

    return sender->group != NULL && sender->group_members_count == party->members_count &&
           memcmp(sender->group_members, party->members,
                  party->members_count * sizeof(party->members[0])) == 0;
}

/* An offer is (epoch u, version u, epoch of the group u, milliseconds i, [(id b, incarnation
 * u) …]): the place in the list is the rank in the group, from 1. */
static tdm_status offer(tdm_weights_sender *sender, uint64_t version, int64_t deadline_ms)
{
    const struct tdm__party *party = &sender->party;
    char key[TDM__ROUND_KEY_BYTES];
    tdm_writer *writer;
    tdm_status status;
    tdm_ref *done = NULL;

    if (sender->carrier->meets && !group_is_current(sender)) {
        tdm_group_leave(sender->group);
        sender->group = NULL;
        sender->group_epoch = sender->epoch;
    }
    (void)snprintf(key, sizeof(key), "offer/%020llu", (unsigned long long)sender->epoch);
    TDM_TRY(tdm_writer_create(&writer));
    tdm_write_array(writer, 2);
    tdm_write_string(writer, key);
    tdm_write_array(writer, 5);
    tdm_write_uint(writer, sender->epoch);
    tdm_write_uint(writer, version);
    tdm_write_uint(writer, sender->group_epoch);
    tdm_write_int(writer, tdm__deadline_left(deadline_ms));
    tdm_write_array(writer, party->members_count);
    for (uint32_t i = 0; i < party->members_count; i++) {
        tdm_write_array(writer, 2);
        tdm_write_bytes(writer, party->members[i].actor.bytes, sizeof(struct tdm__id));
        tdm_write_uint(writer, party->members[i].incarnation);
    }
    status = tdm_writer_status(writer);
    if (status == TDM_OK) {
        status = tdm_actor_call_packed(sender->board, "put", tdm_writer_bytes(writer), &done);
    }
    tdm_writer_destroy(writer);
    TDM_TRY(status);
    return tdm__board_done(done, deadline_ms);
}

static tdm_status meet(tdm_weights_sender *sender, int64_t deadline_ms)
{
    const struct tdm__party *party = &sender->party;
    char name[TDM__MODEL_NAME_BYTES_MAX + TDM__ROUND_KEY_BYTES];
    struct tdm_group_options options = {.name = name,
                                        .rank = 0,
                                        .ranks_count = party->members_count + 1,
                                        .timeout_ms = tdm__deadline_left(deadline_ms)};

    if (!sender->carrier->meets || sender->group != NULL) {
        return TDM_OK;
    }
    (void)snprintf(name, sizeof(name), "%s/%llu", sender->round.record,
                   (unsigned long long)sender->group_epoch);
    TDM_TRY(tdm_group_join(sender->round.runtime, &options, &sender->group));
    memcpy(sender->group_members, party->members,
           party->members_count * sizeof(party->members[0]));
    sender->group_members_count = party->members_count;
    return TDM_OK;
}

static tdm_status stage(tdm_weights_sender *sender, int64_t deadline_ms)
{
    const struct tdm__contents *contents = &sender->contents;
    struct tdm__way way = {.runtime = sender->round.runtime,
                           .board = sender->board,
                           .epoch = sender->epoch,
                           .deadline_ms = deadline_ms};

    if (sender->carrier->give == NULL) {
        return TDM_OK;
    }
    TDM_TRY(meet(sender, deadline_ms));
    way.group = sender->group;
    for (uint32_t i = 0; i < contents->plan->buckets_count; i++) {
        const struct tdm__bucket *bucket = &contents->plan->buckets[i];
        uint64_t *sums = sender->sums + bucket->tensors_first;
        struct tdm__parcel parcel = {.bucket = i,
                                     .image = sender->image,
                                     .size_bytes = (bucket->size_bytes + WORD_BYTES - 1) /
                                                   WORD_BYTES * WORD_BYTES,
                                     .sums = sums,
                                     .sums_count = bucket->tensors_count};

        tdm__contents_pack(contents, i, sender->addresses, sender->image, sums);
        TDM_TRY(sender->carrier->give(&way, &parcel));
        tdm__step("weights.bucket_given");
    }
    return TDM_OK;
}

/* The contents are this process's, or those of the receiver that it relays: they do not change
 * until they are staged. */
static tdm_status stage_and_hear(tdm_weights_sender *sender, int64_t deadline_ms)
{
    tdm_status status = stage(sender, deadline_ms);

    if (status == TDM_OK) {
        status = await_all(sender, "vote/", "voted in", deadline_ms);
    }
    if (status == TDM_OK || status == TDM_E_ACTOR_DIED) {
        return status;
    }
    /* A group says that it was aborted; the runtime knows who died. */
    return find_dead(sender, NULL) != TDM_OK ? TDM_E_ACTOR_DIED : status;
}

/* Has the modules' actors receive, those that do not yet. */
static void call_modules(tdm_weights_sender *sender)
{
    for (uint32_t i = 0; i < sender->modules_count; i++) {
        uint8_t done = 1;

        if (sender->modules_refs[i] != NULL) {
            (void)tdm_wait(&sender->modules_refs[i], 1, 1, 0, &done);
        }
        if (done) {
            tdm_ref_release(sender->modules_refs[i]);
            sender->modules_refs[i] = NULL;
            (void)tdm_actor_call(sender->modules[i], TDM_WEIGHTS_METHOD,
                                 &sender->modules_refs[i], "si", sender->round.model,
                                 sender->timeout_ms);
        }
    }
}

/* ---- the outcome ------------------------------------------------------------------------ */

/* The deadline may be over, and yet somebody has to decide. */
static tdm_status decide(tdm_weights_sender *sender, tdm_status staged, bool *committed)
{
    const struct tdm__version_request proposal = {
        .proposal = staged == TDM_OK ? TDM__UPDATE_COMMITTED : TDM__UPDATE_ABORTED,
        .dead = sender->party.dead,
        .dead_count = sender->party.dead_count};

    TDM_TRY(tdm__round_decide(&sender->round, sender->epoch, &proposal,
                              tdm__deadline_in(DECIDE_MS), committed));
    sender->undecided = false;
    return TDM_OK;
}

/* Those who died after the commit take nothing with them: it stands. */
static tdm_status await_flips(tdm_weights_sender *sender, int64_t deadline_ms)
{
    struct tdm__version_request request = {
        .kind = TDM__VERSION_DEAD, .update = tdm__round_update(&sender->round, sender->epoch)};
    struct tdm__version_answer answer;
    tdm_status status = await_all(sender, "flip/", "gone live with", deadline_ms);

    if (status == TDM_E_ACTOR_DIED) {
        tdm__log(TDM__WARN, "weights", "version %llu of %s is committed: %s",
                 (unsigned long long)sender->version_begun, sender->round.model,
                 tdm_error_detail());
        request.dead = sender->party.dead;
        request.dead_count = sender->party.dead_count;
        status = tdm__round_ask(&sender->round, &request, deadline_ms, &answer);
    }
    return status == TDM_OK
               ? TDM_OK
               : tdm__wrap(status, "version %llu of %s is committed",
                           (unsigned long long)sender->version_begun, sender->round.model);
}

static void forget_offer(tdm_weights_sender *sender, const char *why)
{
    char key[TDM__ROUND_KEY_BYTES];

    (void)tdm__board_close(sender->board, "offer/", TDM_OK, "");
    (void)tdm__board_close(sender->board, tdm__round_key(sender->epoch, "", key), TDM_E_ABORTED,
                           why);
}

static tdm_status abort_with(tdm_weights_sender *sender, tdm_status status, const char *detail)
{
    tdm_group_leave(sender->group); /* it may have failed, and ends what waits in it */
    sender->group = NULL;
    forget_offer(sender, detail);
    return tdm__fail(status, "%s", detail);
}

static tdm_status finish(tdm_weights_sender *sender, int64_t deadline_ms)
{
    char key[TDM__ROUND_KEY_BYTES];
    tdm_ref *done;
    tdm_status status;

    (void)tdm__round_key(sender->epoch, "outcome", key);
    status = tdm_actor_call(sender->board, "put", &done, "s(?)", key, 1);
    if (status == TDM_OK) {
        status = tdm__board_done(done, deadline_ms);
    }
    if (status == TDM_OK) {
        status = await_flips(sender, deadline_ms);
    }
    forget_offer(sender, "the update is over");
    return status;
}

static tdm_status run_update(tdm_weights_sender *sender, uint64_t version, int64_t deadline_ms)
{
    char detail[sizeof(sender->detail)] = "";
    tdm_status staged = offer(sender, version, deadline_ms);
    bool committed = false;

    if (staged == TDM_OK) {
        call_modules(sender);
        staged = stage_and_hear(sender, deadline_ms);
    }
    (void)snprintf(detail, sizeof(detail), "%s", staged == TDM_OK ? "" : tdm_error_detail());
    tdm__step("weights.decide");
    TDM_TRY(decide(sender, staged, &committed));
    tdm__step("weights.decided");
    if (committed) {
        return finish(sender, deadline_ms);
    }
    return staged != TDM_OK
               ? abort_with(sender, staged, detail)
               : abort_with(sender, TDM_E_ABORTED, "a receiver gave up before the decision");
}

/* The version that is relayed, and where it lies: open until tdm_weights_read_end(). */
static tdm_status open_relay(tdm_weights_sender *sender, uint64_t *version_out)
{
    if (sender->relay_of == NULL) {
        *version_out = 0;
        return TDM_OK;
    }
    TDM_TRY(tdm_weights_read_begin(sender->relay_of, version_out));
    for (uint32_t i = 0; i < sender->contents.manifest->tensors_count; i++) {
        sender->addresses[i] = tdm_weights_data(sender->relay_of, i);
    }
    return TDM_OK;
}

static tdm_status send_now(tdm_weights_sender *sender, uint64_t *version_out)
{
    int64_t deadline_ms = tdm__deadline_in(sender->timeout_ms);
    uint64_t version;
    tdm_status status;

    if (sender->board == NULL) {
        return tdm__fail(TDM_E_STATE, "a sender of %s is to be connected first",
                         sender->round.model);
    }
    TDM_TRY(gather_party(sender, deadline_ms));
    TDM_TRY(open_relay(sender, &version));
    status = begin(sender, version, deadline_ms);
    if (status == TDM_OK) {
        version = sender->relay_of == NULL ? sender->version_begun : version;
        status = run_update(sender, version, deadline_ms);
    }
    if (sender->relay_of != NULL) {
        tdm_weights_read_end(sender->relay_of);
    }
    TDM_TRY(status);
    *version_out = version;
    return TDM_OK;
}

/* ---- connect ---------------------------------------------------------------------------- */

/* The note of a model is (manifest v, scheme u, bytes of a bucket u). */
static tdm_status tell_model(tdm_weights_sender *sender, tdm_actor *board, int64_t deadline_ms)
{
    tdm_writer *writer;
    tdm_ref *done = NULL;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    tdm_write_array(writer, 2);
    tdm_write_string(writer, "model");
    tdm_write_array(writer, 3);
    status = tdm__manifest_encode(sender->contents.manifest, writer);
    tdm_write_uint(writer, (uint64_t)sender->scheme);
    tdm_write_uint(writer, sender->contents.bucket_bytes);
    if (status == TDM_OK) {
        status = tdm_writer_status(writer);
    }
    if (status == TDM_OK) {
        status = tdm_actor_call_packed(board, "put", tdm_writer_bytes(writer), &done);
    }
    tdm_writer_destroy(writer);
    TDM_TRY(status);
    return tdm__board_done(done, deadline_ms);
}

static tdm_status open_board(tdm_weights_sender *sender, int64_t deadline_ms)
{
    char name[TDM_WEIGHTS_MODEL_BYTES_MAX + 16];
    tdm_actor *board;
    tdm_status status;

    (void)snprintf(name, sizeof(name), "weights/%s", sender->round.model);
    TDM_TRY(tdm__board_create(sender->round.runtime, name, tdm__deadline_left(deadline_ms),
                              &board));
    status = tell_model(sender, board, deadline_ms);
    if (status != TDM_OK) {
        tdm_actor_destroy(board);
        return status;
    }
    sender->board = board;
    tdm__round_open(&sender->round, board);
    return TDM_OK;
}

static tdm_status await_receivers(tdm_weights_sender *sender, int64_t deadline_ms)
{
    const tdm_value *notes;
    tdm_ref *ref;
    tdm_status status;

    TDM_TRY(tdm__board_wait(sender->board, "join/", "", sender->receivers_count, &ref));
    status = tdm_get_value(ref, tdm__deadline_left(deadline_ms), &notes);
    if (status == TDM_E_TIMEOUT) {
        (void)tdm_cancel(ref, 0);
        (void)gather_party(sender, tdm__deadline_in(LOOK_MS));
        status = tdm__fail(TDM_E_TIMEOUT, "%u of %u receivers of %s have come in %lld ms",
                           sender->party.members_count, sender->receivers_count,
                           sender->round.model, (long long)sender->timeout_ms);
    }
    tdm_ref_release(ref);
    return status;
}

static tdm_status check_idle(const tdm_weights_sender *sender)
{
    return sender->sending
               ? tdm__fail(TDM_E_STATE, "%s is being sent: wait for it", sender->round.model)
               : TDM_OK;
}

tdm_status tdm_weights_sender_connect(tdm_weights_sender *sender)
{
    int64_t deadline_ms = tdm__deadline_in(sender->timeout_ms);
    uint64_t version;

    TDM_TRY(check_idle(sender));
    if (sender->board == NULL) {
        TDM_TRY(open_board(sender, deadline_ms));
    }
    call_modules(sender);
    TDM_TRY(await_receivers(sender, deadline_ms));
    return send_now(sender, &version);
}

/* ---- send ------------------------------------------------------------------------------- */

tdm_status tdm_weights_send(tdm_weights_sender *sender, uint64_t *version_out)
{
    uint64_t version;

    TDM_TRY(check_idle(sender));
    TDM_TRY(send_now(sender, &version));
    if (version_out != NULL) {
        *version_out = version;
    }
    return TDM_OK;
}

static void *sending_main(void *arg)
{
    tdm_weights_sender *sender = arg;
    uint64_t version = 0;
    tdm_status status = send_now(sender, &version);

    (void)pthread_mutex_lock(&sender->mutex);
    sender->sent = true;
    sender->outcome = status;
    sender->version = version;
    (void)snprintf(sender->detail, sizeof(sender->detail), "%s", tdm_error_detail());
    (void)pthread_cond_broadcast(&sender->changed);
    (void)pthread_mutex_unlock(&sender->mutex);
    return NULL;
}

tdm_status tdm_weights_send_async(tdm_weights_sender *sender)
{
    TDM_TRY(check_idle(sender));
    sender->sent = false;
    if (pthread_create(&sender->thread, NULL, sending_main, sender) != 0) {
        return tdm__fail(TDM_E_IO, "pthread_create: the thread that sends %s",
                         sender->round.model);
    }
    sender->sending = true;
    return TDM_OK;
}

static bool await_sent(tdm_weights_sender *sender, int64_t deadline_ms)
{
    const struct timespec until = {.tv_sec = deadline_ms / 1000,
                                   .tv_nsec = deadline_ms % 1000 * 1000000};
    bool sent;

    (void)pthread_mutex_lock(&sender->mutex);
    while (!sender->sent && tdm__clock_ms() < deadline_ms) {
        if (deadline_ms == TDM__NEVER) {
            (void)pthread_cond_wait(&sender->changed, &sender->mutex);
        } else {
            (void)pthread_cond_timedwait(&sender->changed, &sender->mutex, &until);
        }
    }
    sent = sender->sent;
    (void)pthread_mutex_unlock(&sender->mutex);
    return sent;
}

tdm_status tdm_weights_wait(tdm_weights_sender *sender, int64_t timeout_ms,
                            uint64_t *version_out)
{
    if (!sender->sending) {
        return tdm__fail(TDM_E_STATE, "nothing of %s is being sent", sender->round.model);
    }
    if (!await_sent(sender, tdm__deadline_in(timeout_ms))) {
        return tdm__fail(TDM_E_TIMEOUT, "%s is still being sent after %lld ms",
                         sender->round.model, (long long)timeout_ms);
    }
    (void)pthread_join(sender->thread, NULL);
    sender->sending = false;
    if (sender->outcome != TDM_OK) {
        return tdm__fail(sender->outcome, "%s", sender->detail);
    }
    if (version_out != NULL) {
        *version_out = sender->version;
    }
    return TDM_OK;
}

uint32_t tdm_weights_receivers_count(const tdm_weights_sender *sender)
{
    return sender->party.members_count;
}

void tdm_weights_sender_shutdown(tdm_weights_sender *sender)
{
    if (sender == NULL) {
        return;
    }
    if (sender->sending) {
        (void)pthread_join(sender->thread, NULL);
    }
    if (sender->board != NULL) {
        (void)tdm__board_close(sender->board, "", TDM_E_END, "the sender has shut down");
    }
    destroy(sender);
}
