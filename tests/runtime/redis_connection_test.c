/* redis_connection_test.c - a connection finds the master by its sentinels, and finds it again. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The sentinels and masters are sockets on the loop of the test, which reply as the test says. */
#include "runtime/redis/connection.h"

#include "runtime/clock.h"
#include "runtime/redis/subscription.h"

#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- servers ---------------------------------------------------------------------------- */

enum { FAKE_REDIS_CLIENTS_MAX = 64 };

/* One server, which is a sentinel, a master or a replica. It runs on the loop of the test. */
struct fake_redis {
    struct tdm__loop *loop;
    int listener;
    struct tdm__fd_watch *watch;
    uint16_t port;
    int clients_count; /* Clients that have connected so far. */
    struct fake_redis_client *clients[FAKE_REDIS_CLIENTS_MAX];
    bool is_silent;          /* Whether nothing is replied. */
    const char *named_host;  /* Host of the master that it names; NULL for an unknown master. */
    uint16_t named_port;     /* Port of that master. */
    const char *role;        /* Reply to ROLE. */
    const char *other_reply; /* Encoded reply to any other command. */
    char password[64];       /* The user and password of the last AUTH, with a space between. */
    int questions_count;     /* How often it was asked for the master. */
};

/* A connected client of a server. */
struct fake_redis_client {
    struct fake_redis *server;
    int fd;
    struct tdm__fd_watch *watch;
    redisReader *reader; /* Splits the received bytes into commands. */
};

static void client_close(struct fake_redis *server, int index)
{
    struct fake_redis_client *client = server->clients[index];

    if (client != NULL) {
        tdm__fd_watch_destroy(client->watch);
        (void)close(client->fd);
        redisReaderFree(client->reader);
        free(client);
        server->clients[index] = NULL;
    }
}

/* Writes the reply to a command as an encoded text. */
static void reply_to(struct fake_redis *server, const redisReply *command, char *text,
                     size_t text_bytes)
{
    const char *name = command->element[0]->str;

    if (strcasecmp(name, "SENTINEL") == 0) {
        char port[8];

        server->questions_count++;
        (void)snprintf(port, sizeof(port), "%u", server->named_port);
        if (server->named_host == NULL) {
            (void)snprintf(text, text_bytes, "*-1\r\n");
        } else {
            (void)snprintf(text, text_bytes, "*2\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n",
                           strlen(server->named_host), server->named_host, strlen(port), port);
        }
    } else if (strcasecmp(name, "ROLE") == 0) {
        (void)snprintf(text, text_bytes, "*1\r\n$%zu\r\n%s\r\n", strlen(server->role),
                       server->role);
    } else if (strcasecmp(name, "PING") == 0) {
        (void)snprintf(text, text_bytes, "+PONG\r\n");
    } else if (strcasecmp(name, "AUTH") == 0) {
        (void)snprintf(server->password, sizeof(server->password), "%s %s",
                       command->element[1]->str, command->element[2]->str);
        (void)snprintf(text, text_bytes, "+OK\r\n");
    } else {
        (void)snprintf(text, text_bytes, "%s", server->other_reply);
    }
}

/* Reads commands of a client and replies to them. */
static void on_readable(void *arg, int fd, unsigned ready)
{
    struct fake_redis_client *client = arg;
    void *command = NULL;
    char bytes[4096];
    ssize_t length = read(fd, bytes, sizeof(bytes));

    (void)ready;
    if (length <= 0) {
        for (int i = 0; i < client->server->clients_count; i++) {
            if (client->server->clients[i] == client) {
                client_close(client->server, i);
                return;
            }
        }
    }
    (void)redisReaderFeed(client->reader, bytes, (size_t)length);
    while (redisReaderGetReply(client->reader, &command) == REDIS_OK && command != NULL) {
        char reply[512];

        reply_to(client->server, command, reply, sizeof(reply));
        freeReplyObject(command);
        if (!client->server->is_silent && send(fd, reply, strlen(reply), MSG_NOSIGNAL) < 0) {
            return;
        }
    }
}

/* Accepts a client. */
static void on_client(void *arg, int fd, unsigned ready)
{
    struct fake_redis *server = arg;
    struct fake_redis_client *client = calloc(1, sizeof(*client));

    (void)ready;
    if (client == NULL || server->clients_count == FAKE_REDIS_CLIENTS_MAX) {
        abort();
    }
    client->server = server;
    client->fd = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    client->reader = redisReaderCreate();
    if (client->fd < 0 || tdm__fd_watch_create(server->loop, client->fd, TDM__READABLE, on_readable,
                                               client, &client->watch) != TDM_OK) {
        abort();
    }
    server->clients[server->clients_count++] = client;
}

/* Starts a master. Returns 0, or 1 if that fails. */
static int fake_redis_start(struct fake_redis *server, struct tdm__loop *loop)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);

    *server = (struct fake_redis){.loop = loop, .role = "master", .other_reply = "+OK\r\n"};
    server->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (server->listener < 0 ||
        bind(server->listener, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(server->listener, FAKE_REDIS_CLIENTS_MAX) != 0 ||
        getsockname(server->listener, (struct sockaddr *)&address, &bytes) != 0) {
        return 1;
    }
    server->port = ntohs(address.sin_port);
    return tdm__fd_watch_create(loop, server->listener, TDM__READABLE, on_client, server,
                                &server->watch) != TDM_OK;
}

/* Closes the connections with all clients; the server goes on listening. */
static void fake_redis_drop_clients(struct fake_redis *server)
{
    for (int i = 0; i < server->clients_count; i++) {
        client_close(server, i);
    }
}

/* Ends the server. One that was not started is allowed. */
static void fake_redis_end(struct fake_redis *server)
{
    if (server->watch == NULL) {
        return;
    }
    fake_redis_drop_clients(server);
    tdm__fd_watch_destroy(server->watch);
    (void)close(server->listener);
    *server = (struct fake_redis){.listener = -1};
}

/* ---- the connection --------------------------------------------------------------------- */

enum { SENTINELS = 3, LONG_MS = 20000, SENTINEL_MS = 1000 };

static struct tdm__loop *loop;
static struct fake_redis sentinels[SENTINELS];
static struct fake_redis masters[2];
static struct tdm__redis_connection *connection;
static int ready_count; /* How often the connection was ready, and lost. */
static int lost_count;

static void on_ready(void *arg)
{
    (void)arg;
    ready_count++;
}

static void on_lost(void *arg)
{
    (void)arg;
    lost_count++;
}

static const struct tdm__redis_connection_ops ops = {.ready = on_ready, .lost = on_lost};

static bool is_ready(void *arg)
{
    (void)arg;
    return tdm__redis_connection_is_ready(connection);
}

/* Condition: the connection is ready at the master `arg`. */
static bool is_ready_at(void *arg)
{
    const struct fake_redis *master = arg;

    return is_ready(NULL) && tdm__redis_connection_master(connection)->port == master->port;
}

static bool was_ready_twice(void *arg)
{
    (void)arg;
    return ready_count == 2;
}

/* Condition: the trouble contains the text `arg`. */
static bool has_trouble(void *arg)
{
    return strstr(tdm__redis_connection_trouble(connection), arg) != NULL;
}

static void wait_for(bool (*holds)(void *arg), void *arg)
{
    if (tdm__loop_run(loop, holds, arg, tdm__deadline_after(LONG_MS)) != TDM_OK) {
        fail_msg("not within %d ms: %s", (int)LONG_MS,
                 connection != NULL ? tdm__redis_connection_trouble(connection) : "");
    }
}

/* All sentinels name this master. */
static void name_master(const struct fake_redis *master)
{
    for (int i = 0; i < SENTINELS; i++) {
        sentinels[i].named_host = "127.0.0.1";
        sentinels[i].named_port = master->port;
    }
}

/* Starts a connection by the sentinels at the host `host`; `user` stands before it, and `end`
 * behind the name of the master. */
static void connect_by(const char *user, const char *host, const char *end)
{
    struct tdm__redis_address address;
    char url[256];

    (void)snprintf(url, sizeof(url), "redis+sentinel://%s%s:%u,%s:%u,%s:%u/mine%s", user, host,
                   sentinels[0].port, host, sentinels[1].port, host, sentinels[2].port, end);
    assert_int_equal(tdm__redis_address_parse(url, &address), TDM_OK);
    address.allows_remote_master = !tdm__redis_address_is_local(&address);
    assert_int_equal(tdm__redis_connection_create(loop, &address, &ops, NULL, &connection), TDM_OK);
}

static int set_up(void **state)
{
    (void)state;
    ready_count = lost_count = 0;
    connection = NULL;
    if (tdm__loop_create(&loop) != TDM_OK) {
        return 1;
    }
    for (int i = 0; i < SENTINELS; i++) {
        if (fake_redis_start(&sentinels[i], loop) != 0) {
            return 1;
        }
    }
    return fake_redis_start(&masters[0], loop) != 0 || fake_redis_start(&masters[1], loop) != 0;
}

static int tear_down(void **state)
{
    (void)state;
    if (connection != NULL) {
        tdm__redis_connection_destroy(connection);
    }
    for (int i = 0; i < SENTINELS; i++) {
        fake_redis_end(&sentinels[i]);
    }
    fake_redis_end(&masters[0]);
    fake_redis_end(&masters[1]);
    tdm__loop_destroy(loop);
    return 0;
}

static void master_that_a_sentinel_names_is_used(void **state)
{
    (void)state;
    name_master(&masters[1]);
    connect_by("", "127.0.0.1", "");
    wait_for(is_ready, NULL);
    assert_int_equal(tdm__redis_connection_master(connection)->port, masters[1].port);
    assert_string_equal(tdm__redis_connection_master(connection)->name, "127.0.0.1");
    assert_string_equal(tdm__redis_connection_trouble(connection), "");
    assert_int_equal(masters[0].clients_count, 0);
    assert_int_equal(sentinels[0].questions_count, 1);
    assert_int_equal(sentinels[1].questions_count, 0);
    assert_string_equal(masters[1].password, ""); /* No AUTH without a password. */
}

static void sentinels_that_are_silent_closed_or_ignorant_are_skipped(void **state)
{
    int64_t begun_ms = tdm__clock_ms();

    (void)state;
    name_master(&masters[0]);
    sentinels[0].is_silent = true;
    connect_by("", "127.0.0.1", "");
    fake_redis_end(&sentinels[1]); /* Its port refuses connections. */
    wait_for(is_ready, NULL);
    assert_int_equal(sentinels[2].questions_count, 1);
    assert_in_range(tdm__clock_ms() - begun_ms, SENTINEL_MS, 10 * SENTINEL_MS);
    /* The one that has replied is asked first later. */
    fake_redis_drop_clients(&masters[0]);
    wait_for(was_ready_twice, NULL);
    assert_int_equal(sentinels[2].questions_count, 2);
    assert_int_equal(sentinels[0].questions_count, 1);
}

static void failure_of_each_sentinel_is_named(void **state)
{
    char text[64];

    (void)state;
    sentinels[1].is_silent = true;
    sentinels[2].named_host = "";
    connect_by("", "127.0.0.1", "");
    wait_for(has_trouble, "no sentinel has named the master \"mine\"");
    (void)snprintf(text, sizeof(text), "127.0.0.1:%u: knows no master", sentinels[0].port);
    assert_true(has_trouble(text));
    (void)snprintf(text, sizeof(text), "127.0.0.1:%u: no answer within 1000 ms", sentinels[1].port);
    assert_true(has_trouble(text));
    (void)snprintf(text, sizeof(text), "127.0.0.1:%u: answered the question", sentinels[2].port);
    assert_true(has_trouble(text));
    assert_int_equal(ready_count, 0);
}

static void server_whose_role_is_replica_is_refused_until_it_is_a_master(void **state)
{
    (void)state;
    name_master(&masters[0]);
    masters[0].role = "slave";
    connect_by("", "127.0.0.1", "");
    wait_for(has_trouble, "ROLE is slave");
    assert_int_equal(ready_count, 0);
    masters[0].role = "master";
    wait_for(is_ready, NULL);
    /* The one that named a replica may be the only one that does. */
    assert_in_range(sentinels[1].questions_count, 1, 20);
}

static void lost_connection_asks_for_the_master_again(void **state)
{
    (void)state;
    name_master(&masters[0]);
    connect_by("", "127.0.0.1", "");
    wait_for(is_ready, NULL);
    name_master(&masters[1]);
    fake_redis_drop_clients(&masters[0]);
    wait_for(is_ready_at, &masters[1]);
    assert_int_equal(lost_count, 1);
    assert_int_equal(ready_count, 2);
}

/* The reply to a command of a test. */
struct received {
    bool is_there;
    bool is_master; /* What the connection says of the reply. */
};

static void on_command_reply(redisAsyncContext *context, void *reply, void *arg)
{
    struct received *received = arg;

    (void)context;
    received->is_there = true;
    received->is_master = reply != NULL && tdm__redis_connection_check_master(connection, reply);
}

static bool is_received(void *arg)
{
    return ((const struct received *)arg)->is_there;
}

static void send_command(struct received *received)
{
    static const char command[] = "*1\r\n$5\r\nOTHER\r\n";

    assert_true(tdm__redis_connection_send(connection, on_command_reply, received, command,
                                           sizeof(command) - 1));
}

static void reply_of_a_replica_ends_the_connection(void **state)
{
    static const char *const replies[] = {"-READONLY You can't write against a replica.\r\n",
                                          "-MASTERDOWN Link with MASTER is down\r\n"};

    (void)state;
    name_master(&masters[0]);
    connect_by("", "127.0.0.1", "");
    wait_for(is_ready, NULL);
    for (int i = 0; i < 2; i++) {
        struct received received = {.is_there = false};

        masters[i].other_reply = replies[i];
        name_master(&masters[1 - i]);
        send_command(&received);
        wait_for(is_ready_at, &masters[1 - i]);
        assert_true(received.is_there);
        assert_false(received.is_master);
        masters[i].other_reply = "+OK\r\n";
    }
    assert_int_equal(lost_count, 2);
}

/* The sentinel that is asked first is cut off from the others together with the old master. */
static void doubted_master_is_left_for_the_one_that_the_next_sentinel_names(void **state)
{
    (void)state;
    name_master(&masters[0]);
    connect_by("", "127.0.0.1", "");
    wait_for(is_ready, NULL);
    name_master(&masters[1]);
    sentinels[0].named_port = masters[0].port;
    /* A connection that is new is not ended, because there may be no other master yet. */
    tdm__redis_connection_doubt_master(connection);
    assert_true(is_ready(NULL));
    (void)tdm__loop_run(loop, NULL, NULL, tdm__deadline_after(TDM__REDIS_DOUBT_MS + 100));
    tdm__redis_connection_doubt_master(connection);
    assert_false(is_ready(NULL));
    assert_int_equal(lost_count, 1);
    wait_for(is_ready_at, &masters[1]);
    assert_int_equal(sentinels[0].questions_count, 1);
    assert_int_equal(sentinels[1].questions_count, 1);
}

static void other_errors_do_not_end_the_connection(void **state)
{
    struct received received = {.is_there = false};

    (void)state;
    name_master(&masters[0]);
    masters[0].other_reply = "-NOREPLICAS Not enough good replicas to write.\r\n";
    connect_by("", "127.0.0.1", "");
    wait_for(is_ready, NULL);
    send_command(&received);
    wait_for(is_received, &received);
    assert_true(received.is_master);
    assert_true(is_ready(NULL));
}

static void sentinels_and_master_get_their_own_passwords(void **state)
{
    (void)state;
    name_master(&masters[0]);
    connect_by("me:secret@", "127.0.0.1", "?sentinel_password=other");
    wait_for(is_ready, NULL);
    assert_string_equal(masters[0].password, "me secret");
    assert_string_equal(sentinels[0].password, "default other");
}

static void master_on_another_machine_is_refused(void **state)
{
    (void)state;
    name_master(&masters[0]);
    for (int i = 0; i < SENTINELS; i++) {
        sentinels[i].named_host = "192.0.2.1";
    }
    connect_by("", "127.0.0.1", "");
    wait_for(has_trouble, "--insecure-redis");
    assert_true(has_trouble("names the master 192.0.2.1:"));
}

/* The text 127.1 reaches 127.0.0.1, but is a host name for the check. */
static void loopback_address_of_a_sentinel_elsewhere_is_refused(void **state)
{
    (void)state;
    name_master(&masters[0]);
    connect_by("", "127.1", "");
    wait_for(has_trouble, "SENTINEL MONITOR");
    assert_int_equal(masters[0].clients_count, 0);
}

static void server_without_sentinels_is_not_asked_for_its_role(void **state)
{
    struct tdm__redis_address address;
    char url[64];

    (void)state;
    masters[0].role = "slave";
    (void)snprintf(url, sizeof(url), "redis://127.0.0.1:%u", masters[0].port);
    assert_int_equal(tdm__redis_address_parse(url, &address), TDM_OK);
    assert_int_equal(tdm__redis_connection_create(loop, &address, &ops, NULL, &connection), TDM_OK);
    wait_for(is_ready, NULL);
    assert_string_equal(tdm__redis_connection_master(connection)->name, "");
    (void)tdm__loop_run(loop, NULL, NULL, tdm__deadline_after(TDM__REDIS_DOUBT_MS + 100));
    tdm__redis_connection_doubt_master(connection);
    assert_true(is_ready(NULL)); /* There is nobody to ask. */
}

/* Condition: the server `arg` has a client. */
static bool has_client(void *arg)
{
    return ((const struct fake_redis *)arg)->clients_count > 0;
}

static void note_subscribed(void *arg)
{
    *(bool *)arg = true;
}

static bool is_true(void *arg)
{
    return *(const bool *)arg;
}

static void subscription_follows_the_master_of_the_commands(void **state)
{
    struct tdm__redis_host master = {.name = "127.0.0.1", .port = masters[0].port};
    bool is_subscribed = false;
    struct tdm__redis_subscription_options options = {
        .key_prefix = "tdm:{t}:", .subscribed = note_subscribed, .arg = &is_subscribed};
    struct tdm__redis_subscription *subscription;
    struct tdm__redis_address address;
    char url[64];

    (void)state;
    name_master(&masters[0]);
    masters[0].other_reply = "*3\r\n$9\r\nsubscribe\r\n$15\r\ntdm:{t}:changed\r\n:1\r\n";
    (void)snprintf(url, sizeof(url), "redis+sentinel://127.0.0.1:%u/mine", sentinels[0].port);
    assert_int_equal(tdm__redis_address_parse(url, &address), TDM_OK);
    assert_int_equal(tdm__redis_subscription_create(loop, &address, &options, &subscription),
                     TDM_OK);
    wait_for(is_true, &is_subscribed);
    tdm__redis_subscription_follow(subscription, &master);
    assert_int_equal(sentinels[0].questions_count, 1);
    /* The sentinel goes on naming the old master, as one that is cut off together with it. */
    masters[1].is_silent = true;
    master.port = masters[1].port;
    tdm__redis_subscription_follow(subscription, &master);
    wait_for(has_client, &masters[1]);
    assert_int_equal(sentinels[0].questions_count, 1);
    tdm__redis_subscription_destroy(subscription);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(master_that_a_sentinel_names_is_used),
        TEST(sentinels_that_are_silent_closed_or_ignorant_are_skipped),
        TEST(failure_of_each_sentinel_is_named),
        TEST(server_whose_role_is_replica_is_refused_until_it_is_a_master),
        TEST(lost_connection_asks_for_the_master_again),
        TEST(reply_of_a_replica_ends_the_connection),
        TEST(doubted_master_is_left_for_the_one_that_the_next_sentinel_names),
        TEST(other_errors_do_not_end_the_connection),
        TEST(sentinels_and_master_get_their_own_passwords),
        TEST(master_on_another_machine_is_refused),
        TEST(loopback_address_of_a_sentinel_elsewhere_is_refused),
        TEST(server_without_sentinels_is_not_asked_for_its_role),
        TEST(subscription_follows_the_master_of_the_commands),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
