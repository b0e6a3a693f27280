/* failpoint.c - named points in a protocol at which a test can kill or stop this process, make it
 * skip a step, or change a byte. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/failpoint.h"

#include "runtime/clock.h"
#include "runtime/log.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Most rules in the environment variable TANDEM_FAILPOINT; further rules are ignored. */
enum { RULES_MAX = 4 };

/* One rule of TANDEM_FAILPOINT: which process does something, and at which failpoint. All
 * members but `hits_count` are constant after the first hit. */
struct rule {
    char process[64];   /* Name of the process that is killed or stopped, or does what follows. */
    char failpoint[64]; /* Name of the failpoint at which that happens. */
    /* Number of the hit of the failpoint, from 1, at which it happens. */
    unsigned long count;
    /* What the process does to itself, "kill" or "stop"; "skip" if it leaves out a step, "change"
     * if it changes a byte, "note" if it only creates the file. */
    char action[8];
    /* File that the process creates exclusively before that. For "skip" it ends the rule when it
     * exists, and the process does not create it. */
    char file[256];
    atomic_ulong hits_count; /* How often this process has hit the failpoint. */
};

/* Makes only the first hit of a failpoint parse TANDEM_FAILPOINT. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
/* The rules of TANDEM_FAILPOINT. */
static struct rule rules[RULES_MAX];
/* Number of rules in `rules`. */
static int rules_count;
/* Name of this process in the rules of TANDEM_FAILPOINT; borrowed. */
static const char *process_name = "driver";

/* Parses the rule at the start of `text`, a part of TANDEM_FAILPOINT. Logs a warning and returns
 * false if the rule is malformed. */
static bool failpoint_parse(const char *text, struct rule *rule)
{
    char count[8];

    if (sscanf(text, "%63s %63s %7s %7s %255[^ ;]", rule->process, rule->failpoint, count,
               rule->action, rule->file) != 5 ||
        (strcmp(rule->action, "kill") != 0 && strcmp(rule->action, "stop") != 0 &&
         strcmp(rule->action, "skip") != 0 && strcmp(rule->action, "change") != 0 &&
         strcmp(rule->action, "note") != 0)) {
        tdm__log(TDM__WARN, "failpoint",
                 "TANDEM_FAILPOINT=\"%.200s\": wanted PROCESS FAILPOINT COUNT "
                 "kill|stop|skip|change|note FILE",
                 text);
        return false;
    }
    rule->count = strtoul(count, NULL, 10);
    return true;
}

/* Parses TANDEM_FAILPOINT into `rules`. Runs once, at the first hit of a failpoint. */
static void failpoints_parse_all(void)
{
    const char *text = getenv("TANDEM_FAILPOINT");

    while (text != NULL && rules_count < RULES_MAX && failpoint_parse(text, &rules[rules_count])) {
        rules_count++;
        text = strchr(text, ';');
        text = text == NULL ? NULL : text + 1;
    }
}

void tdm__failpoint_set_process(const char *process)
{
    process_name = process;
}

/* Creates the rule's file. Returns false if it exists, because another process, or an earlier run,
 * has triggered the rule. */
static bool create_rule_file(const struct rule *rule)
{
    int fd = open(rule->file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    if (fd < 0) {
        return false;
    }
    (void)dprintf(fd, "%s %d %lld\n", process_name, (int)getpid(), (long long)tdm__clock_ns());
    (void)close(fd);
    return true;
}

/* Counts a hit of the failpoint `name` by this process and returns the rule's count of hits so far;
 * 0 if the rule is for another process or failpoint. */
static unsigned long rule_count_hit(struct rule *rule, const char *name)
{
    if (strcmp(name, rule->failpoint) != 0 || strcmp(process_name, rule->process) != 0) {
        return 0;
    }
    return atomic_fetch_add(&rule->hits_count, 1) + 1;
}

/* True if the rule is of this action: "kill", "stop", "skip", "change" or "note". */
static bool rule_does(const struct rule *rule, const char *action)
{
    return strcmp(rule->action, action) == 0;
}

void tdm__failpoint_hit(const char *name)
{
    (void)pthread_once(&once, failpoints_parse_all);
    for (int i = 0; i < rules_count; i++) {
        bool kills = rule_does(&rules[i], "kill");
        bool stops = rule_does(&rules[i], "stop");
        unsigned long count =
            kills || stops || rule_does(&rules[i], "note") ? rule_count_hit(&rules[i], name) : 0;

        if (count > 0 && count == rules[i].count && create_rule_file(&rules[i]) &&
            (kills || stops)) {
            (void)kill(getpid(), kills ? SIGKILL : SIGSTOP);
        }
    }
}

bool tdm__failpoint_skips(const char *name)
{
    bool skips = false;

    (void)pthread_once(&once, failpoints_parse_all);
    for (int i = 0; i < rules_count; i++) {
        unsigned long count = rule_does(&rules[i], "skip") ? rule_count_hit(&rules[i], name) : 0;

        skips = skips || (count > 0 && count >= rules[i].count && access(rules[i].file, F_OK) != 0);
    }
    return skips;
}

void tdm__failpoint_change(const char *name, struct tdm_bytes bytes)
{
    (void)pthread_once(&once, failpoints_parse_all);
    for (int i = 0; i < rules_count && bytes.size_bytes > 0; i++) {
        unsigned long count = rule_does(&rules[i], "change") ? rule_count_hit(&rules[i], name) : 0;

        if (count > 0 && count == rules[i].count && create_rule_file(&rules[i])) {
            /* The cast is safe: the caller owns the memory. */
            ((unsigned char *)(uintptr_t)bytes.data)[bytes.size_bytes / 2] ^= 1;
        }
    }
}
