/* daemon_options.c - the options of tandemd's command line. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The defaults come first, then the variables of the environment (for users who do not start the
 * daemon themselves), then the options of the command line. cli/command.h parses the words and
 * passes each option to apply_option(). A wrong value prints one line that names the option or the
 * variable, and tandemd exits with code 2. Everything happens before the daemon starts, on one
 * thread. */

#include "cli/daemon_options.h"

#include "cli/command.h"
#include "cli/redis_url.h"
#include "scheduler/records.h"
#include "scheduler/resources.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    BLOCK_BYTES = 2 << 20,     /* Unit of GPU memory in bytes: --gpu-bytes is a multiple of it. */
    REPLICAS_MAX = 100,        /* Largest value of --redis-wait-replicas. */
    HEALTH_DEFAULT_MS = 30000, /* Default of --health-timeout-ms, in milliseconds. */
    UNREACHABLE_DEFAULT_MS = 10000, /* Default of --unreachable-ms, in milliseconds. */
    UNREACHABLE_MIN_MS = 500        /* Smallest value of --unreachable-ms that is not 0. */
};

/* Text of tandemd --help. */
static const char help[] =
    "usage: tandemd [options]        the daemon of one node\n"
    "  --redis URL        the cluster's Redis (unix:///path, redis://host:port, by TLS\n"
    "                     rediss://host:port) or its sentinels\n"
    "                     (redis+sentinel://host,host,host/master);\n"
    "                     default: TANDEM_REDIS, else one of its own\n"
    "  --redis-file FILE  a file with that URL, which may contain a password\n"
    "  --insecure-redis   that Redis may be on another machine without TLS (rediss://)\n"
    "                     (or TANDEM_INSECURE_REDIS=1)\n"
    "  --redis-wait-replicas N  of Redis confirm each renewal, takeover and name (0)\n"
    "  --join HOST:PORT   use the Redis of the daemon that listens there\n"
    "  --cluster NAME     prefix of every key in Redis (tandem)\n"
    "  --listen HOST      also talk TCP, at this address\n"
    "  --port N           at this port (any)\n"
    "  --ports A-B        processes of the node listen at these ports (any)\n"
    "  --advertise HOST   other nodes reach this one by that name or address, not by\n"
    "                     the one of --listen\n"
    "  --tls auto|on|off  encrypt the connections with other machines; all TCP\n"
    "                     connections; none (auto; default: TANDEM_TLS)\n"
    "  --metrics-address HOST:PORT | unix:/path   serves /metrics there\n"
    "  --job-address HOST:PORT   accepts `tandem job` there, too\n"
    "  --job-optional            starts also if that port is taken\n"
    "  --name NAME        of the node (the host's name)\n"
    "  --directory DIR    for sockets and logs (a new one in $TMPDIR)\n"
    "  --cpus N           that the node offers (all)\n"
    "  --device KIND      host: virtual GPUs; cuda: real ones (host)\n"
    "  --gpus N           that it offers (host: 4, cuda: all)\n"
    "  --gpu-bytes N      of memory on each (host: 256 MiB, cuda: all but the reserve)\n"
    "  --gpu-reserve-bytes N  of a real GPU that are left to CUDA and its libraries\n"
    "                     (1.25 GiB for each GPU that it is offered as, at most a quarter)\n"
    "  --memory-bytes N   that actors may count on (0.7 of what the machine has)\n"
    "  --object-store-bytes N  of large values in memory, before they go to disk\n"
    "                     (0.3 of what the machine has)\n"
    "  --resource NAME=N  that it offers too; may be repeated\n"
    "  --labels A=B,…     of the node, for actors to choose it by\n"
    "  --health-timeout-ms N  an actor that does not answer for so long is killed\n"
    "                     (30000; 0: never)\n"
    "  --unreachable-ms N  calls to actors of a node that does not answer for so long\n"
    "                     end as unavailable (10000; 0: never)\n"
    "  --lease-ms N       the node stops its actors with names, restarts or GPUs when it\n"
    "                     has not reached Redis for so long (30000; 5000 to 3600000)\n"
    "  --store-faults SEED,N  for tests: one in N operations on the store fails\n"
    "  --print-logs       what workers print comes out here, prefixed\n"
    "  --private          end with the process at the other end of descriptor 3\n"
    "  --started          report on descriptor 3 when it is ready (tandem start)\n";

/* Reads a number from 0 to `max`. `source` is the option or environment variable that the error
 * names. */
static bool read_number(const char *source, const char *text, uint64_t max, uint64_t *number_out)
{
    char *end;
    unsigned long long number;

    errno = 0;
    number = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || text[0] == '-' || number > max) {
        (void)fprintf(stderr,
                      "tandemd: reading %s failed: expected a number from 0 to %llu, got \"%s\"\n",
                      source, (unsigned long long)max, text);
        return false;
    }
    *number_out = number;
    return true;
}

/* Reads a 32-bit number from 0 to `max`. `source` is the option or environment variable that the
 * error names. */
static bool read_count(const char *source, const char *text, uint32_t max, uint32_t *count_out)
{
    uint64_t number;

    if (!read_number(source, text, max, &number)) {
        return false;
    }
    *count_out = (uint32_t)number;
    return true;
}

/* Reads "NAME=N" from the first `length` bytes of `text` and adds it to the resources. */
static bool read_resource(const char *source, const char *text, size_t length,
                          struct tdm__resources *resources)
{
    char option_index[128];
    char *equals;
    char *end;
    double amount;

    (void)snprintf(option_index, sizeof(option_index), "%.*s", (int)length, text);
    equals = strchr(option_index, '=');
    if (equals == NULL) {
        (void)fprintf(stderr,
                      "tandemd: reading %s failed: expected NAME=N, such as disk=2, got \"%s\"\n",
                      source, option_index);
        return false;
    }
    *equals = '\0';
    amount = strtod(equals + 1, &end);
    if (strcmp(option_index, "CPU") == 0 || strcmp(option_index, "GPU") == 0) {
        (void)fprintf(stderr,
                      "tandemd: reading %s failed: %s has an option of its own. Give --%s N\n",
                      source, option_index, option_index[0] == 'C' ? "cpus" : "gpus");
        return false;
    }
    if (end == equals + 1 || *end != '\0') {
        (void)fprintf(stderr, "tandemd: reading %s failed: expected a number for %s, got \"%s\"\n",
                      source, option_index, equals + 1);
        return false;
    }
    if (tdm__resources_add(resources, option_index, amount) != TDM_OK) {
        (void)fprintf(stderr, "tandemd: reading %s failed: %s: %s\n", source, option_index,
                      tdm_error_detail());
        return false;
    }
    return true;
}

/* Adds labels from a text such as "zone=a,disk=ssd". The option --labels may be repeated and adds
 * to TANDEM_LABELS. */
static bool read_labels(const char *text, struct tdm__labels *labels)
{
    while (*text != '\0') {
        size_t length = strcspn(text, ",");
        char label[TDM__LABEL_BYTES + 1];

        (void)snprintf(label, sizeof(label), "%.*s", (int)length, text);
        if (tdm__labels_add(labels, label) != TDM_OK) {
            (void)fprintf(stderr, "tandemd: reading --labels failed: %s\n", tdm_error_detail());
            return false;
        }
        text += length + (text[length] == ',' ? 1 : 0);
    }
    return true;
}

/* Reads "SEED,N", the seed and the frequency of faults of the store for tests. */
static bool read_faults(const char *source, const char *text, struct cli_daemon_options *options)
{
    char seed[64];
    const char *comma = strchr(text, ',');

    if (comma == NULL || (size_t)(comma - text) >= sizeof(seed)) {
        (void)fprintf(stderr,
                      "tandemd: reading %s failed: expected SEED,N, such as 5,100, got \"%s\"\n",
                      source, text);
        return false;
    }
    (void)snprintf(seed, sizeof(seed), "%.*s", (int)(comma - text), text);
    return read_number(source, seed, UINT64_MAX, &options->fault_seed) &&
           read_count(source, comma + 1, 1000000, &options->fault_one_in);
}

/* Reads the value of TANDEM_RESOURCES, such as "disk=2,licence=1". NULL adds nothing. */
static bool read_resources(const char *text, struct tdm__resources *resources)
{
    while (text != NULL && *text != '\0') {
        size_t length = strcspn(text, ",");

        if (!read_resource("TANDEM_RESOURCES", text, length, resources)) {
            return false;
        }
        text += length + (text[length] == ',' ? 1 : 0);
    }
    return true;
}

/* Copies and checks the node's name. The name is part of every handshake of this node, so the check
 * is the same as there. */
static bool read_name(const char *text, char name[CLI_NAME_BYTES])
{
    size_t length = strlen(text);
    bool is_plain = length > 0 && length < CLI_NAME_BYTES;

    for (size_t i = 0; i < length; i++) {
        is_plain = is_plain && text[i] >= ' ' && text[i] <= '~';
    }
    if (!is_plain) {
        (void)fprintf(stderr,
                      "tandemd: reading --name failed: expected 1 to %d bytes of printable ASCII, "
                      "got %zu bytes: \"%s\"\n",
                      (int)CLI_NAME_BYTES - 1, length, text);
        return false;
    }
    memcpy(name, text, length + 1);
    return true;
}

/* Reads the value of --unreachable-ms or of TANDEM_UNREACHABLE_MS, the `source`. */
static bool read_unreachable(const char *source, const char *text,
                             struct cli_daemon_options *options)
{
    if (!read_count(source, text, INT32_MAX, &options->unreachable_ms)) {
        return false;
    }
    if (options->unreachable_ms != 0 && options->unreachable_ms < UNREACHABLE_MIN_MS) {
        (void)fprintf(stderr,
                      "tandemd: reading %s failed: expected 0 or at least %d milliseconds, got %s. "
                      "A busy node may need %d milliseconds to reply\n",
                      source, (int)UNREACHABLE_MIN_MS, text, (int)UNREACHABLE_MIN_MS);
        return false;
    }
    return true;
}

/* Reads the lease of the node in milliseconds. `source` is the option or environment variable that
 * the error names. */
static bool read_lease(const char *source, const char *text, uint32_t *lease_ms_out)
{
    uint32_t lease_ms;

    if (!read_count(source, text, TDM__NODE_LEASE_MS_MAX, &lease_ms)) {
        return false;
    }
    if (lease_ms < TDM__NODE_LEASE_MS_MIN) {
        (void)fprintf(stderr,
                      "tandemd: reading %s failed: expected %d to %d milliseconds, got %u\n",
                      source, (int)TDM__NODE_LEASE_MS_MIN, (int)TDM__NODE_LEASE_MS_MAX, lease_ms);
        return false;
    }
    *lease_ms_out = lease_ms;
    return true;
}

/* Reads the ports at which the processes of the node listen. */
static bool read_ports(const char *source, const char *text, struct tdm__tcp_settings *tcp)
{
    if (tdm__tcp_settings_parse_ports(text, tcp)) {
        return true;
    }
    (void)fprintf(
        stderr, "tandemd: reading %s failed: expected FIRST-LAST, such as 7000-7099, got \"%s\"\n",
        source, text);
    return false;
}

/* Reads the host by which other nodes reach this one. */
static bool read_advertised_host(const char *source, const char *text,
                                 struct tdm__tcp_settings *tcp)
{
    size_t length = strlen(text);

    if (length > 0 && length < sizeof(tcp->advertised_host) && text[0] != '[') {
        memcpy(tcp->advertised_host, text, length + 1);
        return true;
    }
    (void)fprintf(stderr,
                  "tandemd: reading %s failed: expected a host name or IP address without a port, "
                  "got \"%s\"\n",
                  source, text);
    return false;
}

/* Reads on which TCP connections the node uses TLS. */
static bool read_tls_mode(const char *source, const char *text, enum tdm__tls_mode *mode_out)
{
    if (tdm__tls_mode_parse(source, text, mode_out) == TDM_OK) {
        return true;
    }
    (void)fprintf(stderr, "tandemd: %s\n", tdm_error_detail());
    return false;
}

/* Reads the environment variables for TLS, time limits, the replicas and the store's faults. */
static bool read_health(struct cli_daemon_options *options)
{
    const char *health = getenv("TANDEM_HEALTH_TIMEOUT_MS");
    const char *faults = getenv("TANDEM_STORE_FAULTS");
    const char *unreachable = getenv("TANDEM_UNREACHABLE_MS");
    const char *replicas = getenv("TANDEM_REDIS_WAIT_REPLICAS");
    const char *lease = getenv("TANDEM_LEASE_MS");
    const char *tls = getenv("TANDEM_TLS");

    return (tls == NULL || tls[0] == '\0' ||
            read_tls_mode("TANDEM_TLS", tls, &options->tcp.tls_mode)) &&
           (lease == NULL || read_lease("TANDEM_LEASE_MS", lease, &options->lease_ms)) &&
           (unreachable == NULL ||
            read_unreachable("TANDEM_UNREACHABLE_MS", unreachable, options)) &&
           (replicas == NULL || read_count("TANDEM_REDIS_WAIT_REPLICAS", replicas, REPLICAS_MAX,
                                           &options->wait_replicas)) &&
           (faults == NULL || read_faults("TANDEM_STORE_FAULTS", faults, options)) &&
           (health == NULL ||
            read_count("TANDEM_HEALTH_TIMEOUT_MS", health, INT32_MAX, &options->health_timeout_ms));
}

/* Reads the environment variables that set options of tandemd. Options of the command line replace
 * them, except that --resource adds to TANDEM_RESOURCES, and --labels to TANDEM_LABELS; a name in
 * both fails. */
static bool read_environment(struct cli_daemon_options *options)
{
    const char *gpus = getenv("TANDEM_GPUS");
    const char *bytes = getenv("TANDEM_GPU_BYTES");
    const char *reserve = getenv("TANDEM_GPU_RESERVE_BYTES");
    const char *store = getenv("TANDEM_OBJECT_STORE_BYTES");

    const char *resources = getenv("TANDEM_RESOURCES");
    const char *labels = getenv("TANDEM_LABELS");
    const char *device = getenv("TANDEM_DEVICE");
    const char *metrics = getenv("TANDEM_METRICS_ADDRESS");

    options->metrics_address = metrics;
    options->device = device != NULL && device[0] != '\0' ? device : options->device;
    return read_resources(resources, &options->resources) &&
           (labels == NULL || read_labels(labels, &options->labels)) && read_health(options) &&
           (gpus == NULL || read_count("TANDEM_GPUS", gpus, TDM__NODE_GPUS_MAX, &options->gpus)) &&
           (bytes == NULL ||
            read_number("TANDEM_GPU_BYTES", bytes, UINT64_MAX, &options->gpu_bytes)) &&
           (reserve == NULL || read_number("TANDEM_GPU_RESERVE_BYTES", reserve, UINT64_MAX - 1,
                                           &options->gpu_reserve_bytes)) &&
           (store == NULL || read_number("TANDEM_OBJECT_STORE_BYTES", store, UINT64_MAX >> 1,
                                         &options->object_store_bytes));
}

/* Indices of tandemd's options in the table `args`. */
enum option_index {
    OPTION_PRIVATE,            /* Index of the option --private. */
    OPTION_STARTED,            /* Index of the option --started. */
    OPTION_PRINT_LOGS,         /* Index of the option --print-logs. */
    OPTION_DIRECTORY,          /* Index of the option --directory. */
    OPTION_REDIS,              /* Index of the option --redis. */
    OPTION_REDIS_FILE,         /* Index of the option --redis-file. */
    OPTION_INSECURE_REDIS,     /* Index of the option --insecure-redis. */
    OPTION_WAIT_REPLICAS,      /* Index of the option --redis-wait-replicas. */
    OPTION_JOIN,               /* Index of the option --join. */
    OPTION_CLUSTER,            /* Index of the option --cluster. */
    OPTION_LISTEN,             /* Index of the option --listen. */
    OPTION_PORT,               /* Index of the option --port. */
    OPTION_PORTS,              /* Index of the option --ports. */
    OPTION_ADVERTISE,          /* Index of the option --advertise. */
    OPTION_TLS,                /* Index of the option --tls. */
    OPTION_METRICS_ADDRESS,    /* Index of the option --metrics-address. */
    OPTION_JOB_ADDRESS,        /* Index of the option --job-address. */
    OPTION_JOB_OPTIONAL,       /* Index of the option --job-optional. */
    OPTION_NAME,               /* Index of the option --name. */
    OPTION_CPUS,               /* Index of the option --cpus. */
    OPTION_DEVICE,             /* Index of the option --device. */
    OPTION_GPUS,               /* Index of the option --gpus. */
    OPTION_GPU_BYTES,          /* Index of the option --gpu-bytes. */
    OPTION_GPU_RESERVE_BYTES,  /* Index of the option --gpu-reserve-bytes. */
    OPTION_RESOURCE,           /* Index of the option --resource. */
    OPTION_MEMORY_BYTES,       /* Index of the option --memory-bytes. */
    OPTION_OBJECT_STORE_BYTES, /* Index of the option --object-store-bytes. */
    OPTION_LABELS,             /* Index of the option --labels. */
    OPTION_HEALTH_TIMEOUT_MS,  /* Index of the option --health-timeout-ms. */
    OPTION_UNREACHABLE_MS,     /* Index of the option --unreachable-ms. */
    OPTION_LEASE_MS,           /* Index of the option --lease-ms. */
    OPTION_STORE_FAULTS,       /* Index of the option --store-faults. */
    OPTIONS_COUNT              /* Number of options of tandemd. */
};

/* Table of tandemd's options, in the order of enum option_index. */
static struct tdm__option args[] = {
    [OPTION_PRIVATE] = {"--private", false, NULL},
    [OPTION_STARTED] = {"--started", false, NULL},
    [OPTION_PRINT_LOGS] = {"--print-logs", false, NULL},
    [OPTION_DIRECTORY] = {"--directory", true, NULL},
    [OPTION_REDIS] = {"--redis", true, NULL},
    [OPTION_REDIS_FILE] = {"--redis-file", true, NULL},
    [OPTION_INSECURE_REDIS] = {"--insecure-redis", false, NULL},
    [OPTION_WAIT_REPLICAS] = {"--redis-wait-replicas", true, NULL},
    [OPTION_JOIN] = {"--join", true, NULL},
    [OPTION_CLUSTER] = {"--cluster", true, NULL},
    [OPTION_LISTEN] = {"--listen", true, NULL},
    [OPTION_PORT] = {"--port", true, NULL},
    [OPTION_PORTS] = {"--ports", true, NULL},
    [OPTION_ADVERTISE] = {"--advertise", true, NULL},
    [OPTION_TLS] = {"--tls", true, NULL},
    [OPTION_METRICS_ADDRESS] = {"--metrics-address", true, NULL},
    [OPTION_JOB_ADDRESS] = {"--job-address", true, NULL},
    [OPTION_JOB_OPTIONAL] = {"--job-optional", false, NULL},
    [OPTION_NAME] = {"--name", true, NULL},
    [OPTION_CPUS] = {"--cpus", true, NULL},
    [OPTION_DEVICE] = {"--device", true, NULL},
    [OPTION_GPUS] = {"--gpus", true, NULL},
    [OPTION_GPU_BYTES] = {"--gpu-bytes", true, NULL},
    [OPTION_GPU_RESERVE_BYTES] = {"--gpu-reserve-bytes", true, NULL},
    [OPTION_RESOURCE] = {"--resource", true, NULL},
    [OPTION_MEMORY_BYTES] = {"--memory-bytes", true, NULL},
    [OPTION_OBJECT_STORE_BYTES] = {"--object-store-bytes", true, NULL},
    [OPTION_LABELS] = {"--labels", true, NULL},
    [OPTION_HEALTH_TIMEOUT_MS] = {"--health-timeout-ms", true, NULL},
    [OPTION_UNREACHABLE_MS] = {"--unreachable-ms", true, NULL},
    [OPTION_LEASE_MS] = {"--lease-ms", true, NULL},
    [OPTION_STORE_FAULTS] = {"--store-faults", true, NULL},
    [OPTIONS_COUNT] = {NULL, false, NULL}};

/* Stores the value of an option that is kept as it is. Returns false for every other option. */
static bool store_text(struct cli_daemon_options *options, uint32_t index, const char *value)
{
    const struct {
        enum option_index index; /* Index of the option. */
        const char **place;      /* Where its value is stored. */
    } texts[] = {{OPTION_DIRECTORY, &options->directory},
                 {OPTION_JOIN, &options->join_address},
                 {OPTION_CLUSTER, &options->cluster},
                 {OPTION_LISTEN, &options->listen_host},
                 {OPTION_METRICS_ADDRESS, &options->metrics_address},
                 {OPTION_JOB_ADDRESS, &options->job_address},
                 {OPTION_DEVICE, &options->device}};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (texts[i].index == (enum option_index)index) {
            *texts[i].place = value;
            return true;
        }
    }
    return false;
}

/* Sets the flag of an option without a value and returns true; returns false for other options. */
static bool store_flag(struct cli_daemon_options *options, uint32_t index)
{
    bool *const flags[OPTIONS_COUNT] = {[OPTION_PRIVATE] = &options->is_private,
                                        [OPTION_STARTED] = &options->is_started,
                                        [OPTION_INSECURE_REDIS] = &options->insecure_redis,
                                        [OPTION_PRINT_LOGS] = &options->print_logs,
                                        [OPTION_JOB_OPTIONAL] = &options->job_optional};

    if (flags[index] == NULL) {
        return false;
    }
    *flags[index] = true;
    return true;
}

/* Reads the value of one of the options that say how the node's processes use TCP. */
static bool read_tcp_option(uint32_t index, const char *name, const char *value,
                            struct tdm__tcp_settings *tcp)
{
    if (index == OPTION_PORTS) {
        return read_ports(name, value, tcp);
    }
    return index == OPTION_ADVERTISE ? read_advertised_host(name, value, tcp)
                                     : read_tls_mode(name, value, &tcp->tls_mode);
}

/* Reads the URL of the cluster's Redis server, which is the value or in the file of that name. */
static bool read_redis_option(uint32_t index, const char *name, const char *value,
                              const char **url_out)
{
    if (index == OPTION_REDIS_FILE) {
        return cli_redis_url_read(value, url_out);
    }
    *url_out = value;
    return cli_redis_url_check(name, value);
}

/* Reads the number of CPUs or GPUs that the node offers. */
static bool read_processors(uint32_t index, const char *name, const char *value,
                            struct cli_daemon_options *options)
{
    return index == OPTION_CPUS ? read_count(name, value, 100000, &options->cpus)
                                : read_count(name, value, TDM__NODE_GPUS_MAX, &options->gpus);
}

/* Callback for each option of the command line: stores its value in the options. Returns false if
 * the value is wrong. */
static bool apply_option(void *arg, uint32_t index, const char *value)
{
    struct cli_daemon_options *options = arg;
    const char *name = args[index].name;

    if (store_text(options, index, value) || store_flag(options, index)) {
        return true;
    }
    switch ((enum option_index)index) {
    case OPTION_REDIS:
    case OPTION_REDIS_FILE:
        return read_redis_option(index, name, value, &options->redis_url);
    case OPTION_WAIT_REPLICAS:
        return read_count(name, value, REPLICAS_MAX, &options->wait_replicas);
    case OPTION_NAME:
        return read_name(value, options->name);
    case OPTION_PORT:
        return read_count(name, value, 65535, &options->port);
    case OPTION_PORTS:
    case OPTION_ADVERTISE:
    case OPTION_TLS:
        return read_tcp_option(index, name, value, &options->tcp);
    case OPTION_CPUS:
    case OPTION_GPUS:
        return read_processors(index, name, value, options);
    case OPTION_GPU_BYTES:
        return read_number(name, value, UINT64_MAX, &options->gpu_bytes);
    case OPTION_GPU_RESERVE_BYTES:
        return read_number(name, value, UINT64_MAX - 1, &options->gpu_reserve_bytes);
    case OPTION_RESOURCE:
        return read_resource(name, value, strlen(value), &options->resources);
    case OPTION_MEMORY_BYTES:
        return read_number(name, value, UINT64_MAX >> 20, &options->memory_bytes);
    case OPTION_OBJECT_STORE_BYTES:
        return read_number(name, value, UINT64_MAX >> 1, &options->object_store_bytes);
    case OPTION_LABELS:
        return read_labels(value, &options->labels);
    case OPTION_HEALTH_TIMEOUT_MS:
        return read_count(name, value, INT32_MAX, &options->health_timeout_ms);
    case OPTION_UNREACHABLE_MS:
        return read_unreachable(name, value, options);
    case OPTION_LEASE_MS:
        return read_lease(name, value, &options->lease_ms);
    case OPTION_STORE_FAULTS:
        return read_faults(name, value, options);
    case OPTION_PRIVATE:
    case OPTION_STARTED:
    case OPTION_PRINT_LOGS:
    case OPTION_INSECURE_REDIS:
    case OPTION_JOB_OPTIONAL:
    case OPTION_DIRECTORY:
    case OPTION_JOIN:
    case OPTION_CLUSTER:
    case OPTION_LISTEN:
    case OPTION_METRICS_ADDRESS:
    case OPTION_JOB_ADDRESS:
    case OPTION_DEVICE:
    case OPTIONS_COUNT:
        break;
    }
    return false;
}

/* The command line of tandemd. */
static const struct tdm__command daemon_command_line = {.program = "tandemd",
                                                        .name = "tandemd",
                                                        .summary = "the daemon of one node",
                                                        .help = help,
                                                        .options = args,
                                                        .receive_option = apply_option};

/* Checks where the cluster's records are. TANDEM_REDIS counts only without an option for it, and
 * not for the node of one driver. */
static bool check_store(struct cli_daemon_options *options)
{
    const char *url = getenv("TANDEM_REDIS");
    const char *insecure = getenv("TANDEM_INSECURE_REDIS");

    if (options->join_address != NULL &&
        (options->redis_url != NULL || options->listen_host == NULL)) {
        (void)fprintf(stderr, "tandemd: starting failed: --join needs --listen HOST and excludes "
                              "--redis. Add --listen HOST or remove --redis\n");
        return false;
    }
    if (insecure != NULL && strcmp(insecure, "1") == 0) {
        options->insecure_redis = true;
    }
    if (options->redis_url != NULL || url == NULL || url[0] == '\0' ||
        options->join_address != NULL || options->is_private) {
        return options->redis_url == NULL || options->insecure_redis ||
               cli_redis_url_check_plain(options->redis_url);
    }
    if (!options->insecure_redis && !cli_redis_url_check_plain(url)) {
        return false;
    }
    options->redis_url = strdup(url);
    return true;
}

/* Checks conditions that concern several options of tandemd. */
static bool check_options(const struct cli_daemon_options *options)
{
    if (options->gpu_bytes % BLOCK_BYTES != 0) {
        (void)fprintf(stderr,
                      "tandemd: starting failed: --gpu-bytes %llu is not a multiple of %d (2 MiB). "
                      "Round it to a multiple\n",
                      (unsigned long long)options->gpu_bytes, (int)BLOCK_BYTES);
        return false;
    }
    if (options->port != 0 && options->listen_host == NULL) {
        (void)fprintf(
            stderr, "tandemd: starting failed: --port %u needs --listen HOST. Add --listen HOST\n",
            options->port);
        return false;
    }
    if ((options->tcp.first_port != 0 || options->tcp.advertised_host[0] != '\0') &&
        options->listen_host == NULL) {
        (void)fprintf(stderr, "tandemd: starting failed: --ports and --advertise need --listen "
                              "HOST. Add --listen HOST\n");
        return false;
    }
    return true;
}

/* Returns `tenths` tenths of the machine's memory in bytes; 0 if the size is unknown. */
static uint64_t tenths_of_memory(uint32_t tenths)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    long page_bytes = sysconf(_SC_PAGESIZE);

    return pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes / 10 * tenths : 0;
}

bool cli_daemon_options_read(int argc, char **argv, struct cli_daemon_options *options_out)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct cli_daemon_options options = {.cluster = "tandem",
                                         .cpus = cores > 0 ? (uint32_t)cores : 1,
                                         .device = "host",
                                         .gpus = CLI_UNSET,
                                         .gpu_reserve_bytes = UINT64_MAX,
                                         .memory_bytes = tenths_of_memory(7),
                                         .object_store_bytes = tenths_of_memory(3),
                                         .health_timeout_ms = HEALTH_DEFAULT_MS,
                                         .unreachable_ms = UNREACHABLE_DEFAULT_MS,
                                         .lease_ms = TDM__NODE_LEASE_MS};
    struct tdm__parsed_arguments operands = {.options = args};

    if (tdm__arguments_ask_for_help(argc, argv, 1)) {
        (void)fputs(help, stdout);
        exit(0); /* NOLINT(concurrency-mt-unsafe) nothing has been started */
    }
    if (gethostname(options.name, sizeof(options.name) - 1) < 0 || options.name[0] == '\0') {
        (void)snprintf(options.name, sizeof(options.name), "node");
    }
    if (!read_environment(&options)) {
        return false;
    }
    if (tdm__arguments_parse(&daemon_command_line, argc, argv, 1, &options, &operands) !=
        TDM__EXIT_SUCCESS) {
        return false;
    }
    if (!check_store(&options) || !check_options(&options)) {
        return false;
    }
    *options_out = options;
    return true;
}
