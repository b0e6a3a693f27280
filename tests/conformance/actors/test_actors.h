/* test_actors.h - the actors of the conformance suite, beside the tester of actor_fixture.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_CONFORMANCE_ACTORS_TEST_ACTORS_H
#define TDM_TESTS_CONFORMANCE_ACTORS_TEST_ACTORS_H

/* Does nothing, but links the classes below, and tester, into the program.
 *
 * holder (R, h): keeps a reference and a handle; made with nothing it has none
 *   keep (R)        keeps it;  drop () lets go;  give () replies it
 *   read ()         waits for what it keeps, and replies that integer
 *   make (i)        replies a reference to a put of its own
 *   later (i)       replies the integer after a moment
 *   kinds (v, v)    replies two integers: the kinds of value that arrived
 *   object (i)      replies the reference to the failure of its employee's object (i)
 *   employ (h)      keeps the handle;  dismiss () lets go
 *   ask (i)         replies what its employee's add (i) replies
 *   sum (a)         replies the sum of an array of 64-bit integers
 *   range (u)       replies such an array: 0, 1, 2 …
 *   several (i)     replies three integers: i, i + 1, i + 2
 *
 * crowd: takes max_concurrency;  grouped_crowd: meet() in a group of 2
 *   meet (i)        returns when so many are inside;  here () how many are
 *
 * desk: asynchronous
 *   ask ()          is answered later;  asked () replies how many wait
 *   answer (i)      answers all with i, from a thread of its own;  refuse () fails them
 *
 * source: streams; wants max_concurrency 2
 *   count (i)       yields 0 … i-1;  falter (i) does, and fails
 *   pour (i)        does not wait for its reader;  drip (i) waits after each item
 *   flow ()         yields until nobody takes any more;  sent () replies how many it has
 *   stopped ()      replies how many flows have ended
 *
 * patient: wants max_concurrency 2
 *   endure ()       returns when it is canceled;  begun () and ended () how often
 *   left ()         replies the milliseconds to the caller's deadline
 *   delegate (h …)  has the first of these patients endure, by way of the others, and waits
 *
 * mortal (s): appends "born" and "end" to the file of that name, if it has one
 *   about ()        replies what it is: restarts, pid, job, class, name, name space
 *   perish (i)      kills itself while it was restarted less often, then replies how often
 *   leave ()        exits in good order, after its reply
 *   breed (s, ?)    makes a mortal of that name, detached or not, and replies its pid
 *   mumble (s)      writes to stderr and kills itself
 *
 * stumbler
 *   stumble (i)     fails, but for every i-th time; then replies how often it has run
 *   runs ()         replies how often that was
 *
 * objector: asynchronous; its failures carry i, the number of failures so far, and a reference to i
 *   object (i)      fails;  falter () yields 0 and fails with 1
 *   wait ()         waits until refuse () fails it with 2
 *   exceed ()       tries to fail with more bytes than a failure may carry
 *
 * founder: makes placement groups, and actors without saying where
 *   found ()        a detached group "founded" and one "founder's own", of 2 bundles each
 *   current ()      replies how many bundles the group has in which it lies
 *   child (i)       replies a handle to a founder of its own, with that scheduling */
void test_actors_use(void);

#endif
