/* functions.c - the library of Lua functions that is loaded into Redis. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Redis runs one function at a time, so a function is a transaction. KEYS[1] is the cluster's
 * prefix "tdm:{cluster}:". All keys begin with the prefix and are therefore in one slot:
 *
 *   <prefix>r:<key>      hash: v (version), d (bytes), n (count of renewals; members only)
 *   <prefix>index        sorted set of the record keys with score 0, thus sorted by name
 *   <prefix>leases       sorted set of the keys of the members' records, by the ends of their
 *                        leases on the kept clock in milliseconds
 *   <prefix>members      epoch of the list of members: a version that is new at each change
 *   <prefix>clock        hash: now (the kept clock) and time (TIME when it last advanced), both in
 *                        milliseconds; server (run ID and replication ID), generation (a version),
 *                        began (kept clock at the change of the generation), held_until (kept clock
 *                        from which members may be taken over)
 *   <prefix>version      the last version assigned
 *   <prefix>q:<writer>   hash: the outcomes of a writer's commits, see below
 *   <prefix>changes:<f>  sorted set of the keys that begin with <f> (node/ or free/), by version
 *   <prefix>removed      hash: the version at which a record was removed last, for each <f>
 *   <prefix>changed      channel: the changed keys of a commit, one per line
 *
 * Reading writes nothing, so it works while the server refuses writes. Records do not expire, since
 * the expiry of Redis goes on while the server is stopped; runtime/store.h describes the kept
 * clock, which judges the leases of members instead.
 *
 * The records of one commit get the same version. It is the time in microseconds, or one more than
 * the last version if that is not later. So no version is assigned twice, even if the server lost
 * its last second or all of its data. It stays under 2^53, where Lua's numbers are exact, until the
 * year 2255.
 *
 * A writer, such as a daemon, numbers its commits from 1 on. The server keeps the outcome of each,
 * so a repeated commit is replied to like the first and is not carried out again. Each commit also
 * carries the lowest number whose outcome the writer lacks; the outcomes below are dropped, and a
 * lower number is refused. No outcome expires by time: those of a node go with the record of the
 * node. A writer that the server does not know, because its outcomes are gone, opens a session
 * before it commits. The number of a session is a version, so a commit of an earlier session, which
 * may have been carried out before the outcomes went, is recognised and refused. The hash has the
 * fields "session", "lowest" and one for each number with an outcome: "OK version" (0: put
 * nothing), "CONFLICT key" or "HELD key". The reply to a lost commit also has the records over
 * which it was lost, unless the commit is repeated. Session and numbers have 16 digits, so that
 * their texts compare as numbers.
 *
 * Daemons of two builds may share a server, each with its own library. The name of the library and
 * those of its functions therefore contain a hash of the Lua source, which tdm__redis_library()
 * computes. Only the first two lines of the text, with that name, are not hashed. */
#include "runtime/redis/functions.h"

#include "runtime/store.h"
#include "runtime/wire/message.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* Ends of the names of the functions, behind the name of the library. */
#define READ_SUFFIX    "_read"
#define COMMIT_SUFFIX  "_commit"
#define RENEW_SUFFIX   "_renew"
#define SESSION_SUFFIX "_session"

/* Lua source of the function that reads records, and of helpers for all functions. The local
 * `library` is the name of the library. */
static const char reading[] =
    "\n"
    "local function record_key(keys, key)\n"
    "  return keys[1] .. 'r:' .. key\n"
    "end\n"
    "\n"
    "local function append_record(out, keys, key)\n"
    "  local record = redis.call('HMGET', record_key(keys, key), 'v', 'd')\n"
    "  if record[1] then\n"
    "    out[#out + 1] = key\n"
    "    out[#out + 1] = record[1]\n"
    "    out[#out + 1] = record[2]\n"
    "  end\n"
    "end\n"
    "\n"
    "local function read_prefix(out, keys, prefix)\n"
    "  local index = keys[1] .. 'index'\n"
    "  local low, high = '[' .. prefix, '(' .. prefix .. '\\255'\n"
    "  for _, key in ipairs(redis.call('ZRANGEBYLEX', index, low, high)) do\n"
    "    append_record(out, keys, key)\n"
    "  end\n"
    "end\n"
    "\n"
    "-- Beginnings of the keys whose changes are kept, so that they can be read alone.\n"
    "local families = {['node/'] = true, ['free/'] = true}\n"
    "\n"
    "-- Whether the records of a prefix that were put since the version `since` are all that has\n"
    "-- changed: a newer generation may have lost changes.\n"
    "local function knows_changes(keys, prefix, since, version)\n"
    "  if not families[prefix] or since == 0 or since > tonumber(version) then\n"
    "    return false\n"
    "  end\n"
    "  local removed = redis.call('HGET', keys[1] .. 'removed', prefix) or '0'\n"
    "  local generation = redis.call('HGET', keys[1] .. 'clock', 'generation') or '0'\n"
    "  return tonumber(removed) <= since and tonumber(generation) <= since\n"
    "end\n"
    "\n"
    "local function read_changes(out, keys, prefix, since)\n"
    "  local version = redis.call('GET', keys[1] .. 'version') or '1'\n"
    "  local at = #out\n"
    "  out[at + 1], out[at + 2] = prefix .. '*', version\n"
    "  if not knows_changes(keys, prefix, tonumber(since), version) then\n"
    "    out[at + 3] = '" TDM__STORE_ALL "'\n"
    "    read_prefix(out, keys, prefix)\n"
    "    return\n"
    "  end\n"
    "  out[at + 3] = '" TDM__STORE_CHANGES "'\n"
    "  local set = keys[1] .. 'changes:' .. prefix\n"
    "  for _, key in ipairs(redis.call('ZRANGEBYSCORE', set, '(' .. since, '+inf')) do\n"
    "    append_record(out, keys, key)\n"
    "  end\n"
    "end\n"
    "\n"
    "-- ARGV: patterns. Returns key, version, bytes, key, ...; a record that two patterns "
    "match\n"
    "-- comes twice.\n"
    "local function read(keys, args)\n"
    "  local out = {}\n"
    "  for _, pattern in ipairs(args) do\n"
    "    if pattern:sub(-1) == '*' then\n"
    "      read_prefix(out, keys, pattern:sub(1, -2))\n"
    "    else\n"
    "      local prefix, since = pattern:match('^([^*]*)%*>(%d+)$')\n"
    "      if prefix then\n"
    "        read_changes(out, keys, prefix, since)\n"
    "      else\n"
    "        append_record(out, keys, pattern)\n"
    "      end\n"
    "    end\n"
    "  end\n"
    "  return out\n"
    "end\n"
    "\n"
    "redis.register_function{function_name = library .. '" READ_SUFFIX "', callback = read,\n"
    "                        flags = {'no-writes'}}\n";

/* Lua source of helpers for versions, for the kept clock, and for the list of members. */
static const char judging[] =
    "\n"
    "-- In microseconds.\n"
    "local function now()\n"
    "  local time = redis.call('TIME')\n"
    "  return time[1] * 1000000 + time[2]\n"
    "end\n"
    "\n"
    "local function next_version(keys)\n"
    "  local last = tonumber(redis.call('GET', keys[1] .. 'version') or '0')\n"
    "  local version = string.format('%.0f', math.max(now(), last + 1))\n"
    "  redis.call('SET', keys[1] .. 'version', version)\n"
    "  return version\n"
    "end\n"
    "\n"
    "-- The kept clock, in milliseconds.\n"
    "local function kept_clock(keys)\n"
    "  return tonumber(redis.call('HGET', keys[1] .. 'clock', 'now') or '0')\n"
    "end\n"
    "\n"
    "-- Advances the kept clock by the time since its last advance, at most a step; returns it.\n"
    "local function advance_clock(keys)\n"
    "  local clock = keys[1] .. 'clock'\n"
    "  local time = math.floor(now() / 1000)\n"
    "  local last = tonumber(redis.call('HGET', clock, 'time') or time)\n"
    "  local kept = kept_clock(keys) + math.max(0, math.min(2000, time - last))\n"
    "  redis.call('HSET', clock, 'now', kept, 'time', time)\n"
    "  return kept\n"
    "end\n"
    "\n"
    "-- Run ID of this process of the server; nil until it is needed. It never changes, and INFO\n"
    "-- takes longer than all else that a renewal does.\n"
    "local run_id\n"
    "\n"
    "-- Run ID and replication ID of this server.\n"
    "local function server_id()\n"
    "  run_id = run_id or redis.call('INFO', 'server'):match('run_id:(%w+)')\n"
    "  return run_id .. ' ' .. redis.call('INFO', 'replication'):match('master_replid:(%w+)')\n"
    "end\n"
    "\n"
    "-- Whether no member may be taken over now: also before the first renewal at this server, "
    "whose\n"
    "-- ID is `server`.\n"
    "local function is_held(keys, server)\n"
    "  local clock = redis.call('HMGET', keys[1] .. 'clock', 'now', 'held_until', 'server')\n"
    "  return not clock[2] or tonumber(clock[1]) < tonumber(clock[2]) or clock[3] ~= server\n"
    "end\n"
    "\n"
    "-- Whether the store is in this generation: not before the first renewal at this server.\n"
    "local function is_generation(keys, generation)\n"
    "  local clock = redis.call('HMGET', keys[1] .. 'clock', 'generation', 'server')\n"
    "  return clock[1] == generation and clock[2] == server_id()\n"
    "end\n"
    "\n"
    "-- The clock advances first: the lease must not be charged with time from before it began.\n"
    "local function start_lease(keys, key, lease)\n"
    "  redis.call('ZADD', keys[1] .. 'leases', advance_clock(keys) + lease, key)\n"
    "  redis.call('SET', keys[1] .. 'members', next_version(keys))\n"
    "end\n"
    "\n"
    "-- Returns whether there was such a record. The outcomes of a node, whose key is "
    "node/<writer>,\n"
    "-- go with it.\n"
    "local function remove(keys, key)\n"
    "  local family = key:sub(1, 5)\n"
    "  redis.call('ZREM', keys[1] .. 'index', key)\n"
    "  if families[family] and redis.call('ZREM', keys[1] .. 'changes:' .. family, key) == 1 then\n"
    "    redis.call('HSET', keys[1] .. 'removed', family, next_version(keys))\n"
    "  end\n"
    "  if key:sub(1, 5) == 'node/' then\n"
    "    redis.call('DEL', keys[1] .. 'q:' .. key:sub(6))\n"
    "  end\n"
    "  if redis.call('ZREM', keys[1] .. 'leases', key) == 1 then\n"
    "    redis.call('SET', keys[1] .. 'members', next_version(keys))\n"
    "  end\n"
    "  return redis.call('DEL', record_key(keys, key)) == 1\n"
    "end\n"
    "\n"
    "local function publish(keys, changed)\n"
    "  if #changed > 0 then\n"
    "    redis.call('PUBLISH', keys[1] .. 'changed', table.concat(changed, '\\n'))\n"
    "  end\n"
    "end\n";

/* Lua source of the function that commits writes. */
static const char committing[] =
    "\n"
    "-- The keys whose versions are not what the writer read; which keys there are; and a key\n"
    "-- that must be that of a lost member while no loss counts, or whose writer knows another\n"
    "-- generation, or nil.\n"
    "local function find_losers(keys, args)\n"
    "  local losers = {}\n"
    "  local there = {}\n"
    "  local held\n"
    "  for i = 3, #args, 5 do\n"
    "    local kind, key, wanted = args[i], args[i + 1], args[i + 2]\n"
    "    local version = redis.call('HGET', record_key(keys, key), 'v') or '0'\n"
    "    if kind ~= 'generation' and wanted ~= 'any' and wanted ~= version then\n"
    "      losers[#losers + 1] = key\n"
    "    elseif kind == 'lost' and is_held(keys, server_id()) or\n"
    "       kind == 'generation' and not is_generation(keys, wanted) then\n"
    "      held = held or key\n"
    "    end\n"
    "    there[key] = version ~= '0'\n"
    "  end\n"
    "  return losers, there, held\n"
    "end\n"
    "\n"
    "-- The reply to a lost commit: its outcome, then key, version ('0' for none) and bytes of "
    "each\n"
    "-- loser.\n"
    "local function losers_reply(keys, outcome, losers)\n"
    "  local out = {outcome}\n"
    "  for _, key in ipairs(losers) do\n"
    "    local record = redis.call('HMGET', record_key(keys, key), 'v', 'd')\n"
    "    out[#out + 1] = key\n"
    "    out[#out + 1] = record[1] or '0'\n"
    "    out[#out + 1] = record[2] or ''\n"
    "  end\n"
    "  return out\n"
    "end\n"
    "\n"
    "local function put(keys, write, commit)\n"
    "  local record = record_key(keys, write.key)\n"
    "  commit.version = commit.version or next_version(keys)\n"
    "  redis.call('HSET', record, 'v', commit.version, 'd', write.bytes)\n"
    "  if not commit.there[write.key] then\n"
    "    redis.call('ZADD', keys[1] .. 'index', 0, write.key)\n"
    "  end\n"
    "  local family = write.key:sub(1, 5)\n"
    "  if families[family] then\n"
    "    redis.call('ZADD', keys[1] .. 'changes:' .. family, commit.version, write.key)\n"
    "  end\n"
    "  if write.lease ~= '0' then\n"
    "    start_lease(keys, write.key, write.lease)\n"
    "  end\n"
    "  commit.there[write.key] = true\n"
    "end\n"
    "\n"
    "-- Returns whether the record has changed.\n"
    "local function apply(keys, write, commit)\n"
    "  if write.kind == 'put' then\n"
    "    put(keys, write, commit)\n"
    "    return true\n"
    "  elseif write.kind == 'delete' then\n"
    "    commit.there[write.key] = false\n"
    "    return remove(keys, write.key)\n"
    "  end\n"
    "  return false\n"
    "end\n"
    "\n"
    "-- Returns the version, and whether the record of a node was removed.\n"
    "local function apply_all(keys, args, there)\n"
    "  local commit = {there = there}\n"
    "  local changed = {}\n"
    "  local removes_node = false\n"
    "  for i = 3, #args, 5 do\n"
    "    local write = {kind = args[i], key = args[i + 1], lease = args[i + 3],\n"
    "                   bytes = args[i + 4]}\n"
    "    if apply(keys, write, commit) then\n"
    "      changed[#changed + 1] = write.key\n"
    "    end\n"
    "    removes_node = removes_node or\n"
    "      write.kind == 'delete' and write.key:sub(1, 5) == 'node/'\n"
    "  end\n"
    "  publish(keys, changed)\n"
    "  return commit.version or '0', removes_node\n"
    "end\n"
    "\n";

/* Lua source of the functions that open a writer's session and that carry out a commit once. */
static const char numbering[] =
    "\n"
    "local function digits(number)\n"
    "  return string.format('%016.0f', number)\n"
    "end\n"
    "\n"
    "-- ARGV: writer, lowest number. Returns the new session of the writer. Drops earlier "
    "outcomes.\n"
    "local function open_session(keys, args)\n"
    "  local outcomes = keys[1] .. 'q:' .. args[1]\n"
    "  local session = digits(tonumber(next_version(keys)))\n"
    "  redis.call('DEL', outcomes)\n"
    "  redis.call('HSET', outcomes, 'session', session, 'lowest', args[2])\n"
    "  return session\n"
    "end\n"
    "\n"
    "-- Drops the outcomes of the numbers from `first` up to the one before `lowest`. The caller\n"
    "-- notes the lowest number.\n"
    "local function drop_outcomes(outcomes, first, lowest)\n"
    "  for number = tonumber(first), tonumber(lowest) - 1 do\n"
    "    redis.call('HDEL', outcomes, digits(number))\n"
    "  end\n"
    "end\n"
    "\n"
    "-- ARGV: writer, 'session number lowest', then per write:\n"
    "-- kind, key, version ('any', '0' for none), lease, bytes.\n"
    "local function commit(keys, args)\n"
    "  local outcomes = keys[1] .. 'q:' .. args[1]\n"
    "  local session, number, lowest = args[2]:match('^(%d+) (%d+) (%d+)$')\n"
    "  local kept = redis.call('HMGET', outcomes, 'session', 'lowest', number)\n"
    "  if kept[1] ~= session then\n"
    "    return 'UNKNOWN'\n"
    "  elseif kept[3] then\n"
    "    return kept[3]\n"
    "  elseif number < kept[2] then\n"
    "    return 'SETTLED'\n"
    "  end\n"
    "  if lowest > kept[2] then\n"
    "    drop_outcomes(outcomes, kept[2], lowest)\n"
    "  else\n"
    "    lowest = kept[2]\n"
    "  end\n"
    "  local outcome, removes_node\n"
    "  local losers, there, held = find_losers(keys, args)\n"
    "  if #losers > 0 then\n"
    "    outcome = 'CONFLICT ' .. losers[1]\n"
    "  elseif held then\n"
    "    outcome = 'HELD ' .. held\n"
    "  else\n"
    "    outcome, removes_node = apply_all(keys, args, there)\n"
    "    outcome = 'OK ' .. outcome\n"
    "  end\n"
    "  -- The commit may have deleted the record of its own node, and its outcomes with it.\n"
    "  if not removes_node or redis.call('EXISTS', outcomes) == 1 then\n"
    "    redis.call('HSET', outcomes, 'lowest', lowest, number, outcome)\n"
    "  end\n"
    "  return #losers > 0 and losers_reply(keys, outcome, losers) or outcome\n"
    "end\n"
    "\n"
    "redis.register_function(library .. '" SESSION_SUFFIX "', open_session)\n"
    "redis.register_function(library .. '" COMMIT_SUFFIX "', commit)\n";

/* Lua source of the function that renews the lease of a member. */
static const char renewing[] =
    "\n"
    "-- Starts a new generation if this is another server, or if it has lost changes. Members are\n"
    "-- taken over only when the clock has advanced by `hold` after that.\n"
    "local function check_generation(keys, server, kept, hold, has_lost_changes)\n"
    "  local clock = keys[1] .. 'clock'\n"
    "  local known = redis.call('HMGET', clock, 'server', 'began', 'held_until')\n"
    "  if known[1] ~= server or has_lost_changes then\n"
    "    redis.call('HSET', clock, 'server', server, 'generation', next_version(keys),\n"
    "               'began', kept, 'held_until', kept + hold)\n"
    "  elseif known[2] + hold > tonumber(known[3]) then\n"
    "    redis.call('HSET', clock, 'held_until', known[2] + hold)\n"
    "  end\n"
    "end\n"
    "\n"
    "-- Removes the records of the members whose leases and grace have ended.\n"
    "local function take_over(keys, kept, grace)\n"
    "  local limit = '(' .. (kept - grace)\n"
    "  local lost = redis.call('ZRANGE', keys[1] .. 'leases', '-inf', limit, 'BYSCORE')\n"
    "  for _, key in ipairs(lost) do\n"
    "    remove(keys, key)\n"
    "  end\n"
    "  publish(keys, lost)\n"
    "end\n"
    "\n"
    "-- ARGV: key of the member's record, lease and grace in milliseconds, count of the renewal\n"
    "-- that was acknowledged last, known epoch of the list of members, known generation ('0': "
    "none;\n"
    "-- a lower count tells nothing about a later one). Returns 'LOST', or the\n"
    "-- kept clock, the version of the record, the epoch of the list, the count of this renewal,\n"
    "-- the generation, and the time for which no member is taken over; then, if the list is not\n"
    "-- known, key, version and bytes of each member.\n"
    "local function renew(keys, args)\n"
    "  local key, lease, grace = args[1], tonumber(args[2]), tonumber(args[3])\n"
    "  local own = redis.call('HMGET', record_key(keys, key), 'v', 'n')\n"
    "  if not own[1] then\n"
    "    return 'LOST'\n"
    "  end\n"
    "  local kept = advance_clock(keys)\n"
    "  local count, acknowledged = tonumber(own[2] or '0'), tonumber(args[4])\n"
    "  local generation = redis.call('HGET', keys[1] .. 'clock', 'generation')\n"
    "  local is_known = args[6] == '0' or args[6] == generation\n"
    "  local server = server_id()\n"
    "  check_generation(keys, server, kept, lease + grace + 1, is_known and count < acknowledged)\n"
    "  count = math.max(count, acknowledged) + 1\n"
    "  redis.call('HSET', record_key(keys, key), 'n', count)\n"
    "  redis.call('ZADD', keys[1] .. 'leases', kept + lease, key)\n"
    "  if not is_held(keys, server) then\n"
    "    take_over(keys, kept, grace)\n"
    "  end\n"
    "  local clock = redis.call('HMGET', keys[1] .. 'clock', 'generation', 'held_until')\n"
    "  local epoch = redis.call('GET', keys[1] .. 'members')\n"
    "  local out = {tostring(kept), own[1], epoch, tostring(count), clock[1],\n"
    "               tostring(math.max(0, clock[2] - kept))}\n"
    "  if epoch ~= args[5] then\n"
    "    read_prefix(out, keys, key:match('^[^/]*/'))\n"
    "  end\n"
    "  return out\n"
    "end\n"
    "\n"
    "-- A renewal changes a few numbers, and must succeed when there is no memory for more.\n"
    "redis.register_function{function_name = library .. '" RENEW_SUFFIX "', callback = renew,\n"
    "                        flags = {'allow-oom'}}\n";

/* The parts of the Lua source, in the order in which Redis gets them. One string would be longer
 * than compilers must accept. */
static const char *const parts[] = {reading, judging, committing, numbering, renewing};

/* Capacity of the first lines of the text, which contain the name of the library twice. */
enum { HEADER_BYTES = 2 * TDM__REDIS_NAME_BYTES + 64 };

/* Text of the library; empty before library_init(). */
static char library_text[HEADER_BYTES + sizeof(reading) + sizeof(judging) + sizeof(committing) +
                         sizeof(numbering) + sizeof(renewing)];
/* Names and text of the library. Written once and constant afterwards, so all threads may read it.
 */
static struct tdm__redis_library redis_library = {.text = library_text};
/* Initialises `redis_library` once. */
static pthread_once_t library_once = PTHREAD_ONCE_INIT;

/* Joins the parts of the Lua source behind the space for the first lines. Returns the source. */
static const char *join_parts(void)
{
    char *source = library_text + HEADER_BYTES;
    char *end = source;

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        end = stpcpy(end, parts[i]);
    }
    return source;
}

/* Initialises `redis_library`. */
static void library_init(void)
{
    struct tdm__redis_library *library = &redis_library;
    const char *source = join_parts();
    uint64_t hash = tdm__message_hash_text(source, TDM__MESSAGE_HASH_START);
    int bytes;

    (void)snprintf(library->name, sizeof(library->name), "tandem_%016" PRIx64, hash);
    (void)snprintf(library->read_function, sizeof(library->read_function), "%s" READ_SUFFIX,
                   library->name);
    (void)snprintf(library->commit_function, sizeof(library->commit_function), "%s" COMMIT_SUFFIX,
                   library->name);
    (void)snprintf(library->renew_function, sizeof(library->renew_function), "%s" RENEW_SUFFIX,
                   library->name);
    (void)snprintf(library->session_function, sizeof(library->session_function),
                   "%s" SESSION_SUFFIX, library->name);
    bytes = snprintf(library_text, HEADER_BYTES, "#!lua name=%s\nlocal library = '%s'\n",
                     library->name, library->name);
    memmove(library_text + bytes, source, strlen(source) + 1);
}

const struct tdm__redis_library *tdm__redis_library(void)
{
    (void)pthread_once(&library_once, library_init);
    return &redis_library;
}

_Static_assert(TDM__STORE_CLOCK_STEP_MS == 2000, "the step of the kept clock in the Lua above");
