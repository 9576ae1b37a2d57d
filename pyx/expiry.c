#include "expiry.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static pid_t owner; /* the process that has the thread: a child of fork has none */
static bool armed;
static struct timespec deadline;
static char text[1024];
static int status;

static void end(void)
{
    size_t done = 0, length = strlen(text);
    while (done < length) {
        ssize_t written = write(STDERR_FILENO, text + done, length - done);
        if (written <= 0)
            break;
        done += (size_t)written;
    }
    _exit(status);
}

static bool passed(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec > deadline.tv_sec || (now.tv_sec == deadline.tv_sec && now.tv_nsec >= deadline.tv_nsec);
}

static void *wait_for_deadline(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&mutex);
    for (;;) {
        if (!armed)
            pthread_cond_wait(&changed, &mutex);
        else if (passed())
            end();
        else
            pthread_cond_timedwait(&changed, &mutex, &deadline);
    }
    return NULL;
}

/* Start the thread, with all signals blocked there: their handlers are for the threads of Python. */
static int start(void)
{
    pthread_t thread;
    pthread_condattr_t monotonic;
    sigset_t all, before;
    int error;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&thread, NULL, wait_for_deadline, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0)
        pthread_detach(thread);
    return error;
}

int ddl_deadline_arm(double seconds, const char *said, int wanted)
{
    int error = 0;

    pthread_mutex_lock(&mutex);
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_sec += (time_t)seconds;
    deadline.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    if (deadline.tv_nsec >= 1000000000) {
        deadline.tv_sec += 1;
        deadline.tv_nsec -= 1000000000;
    }
    strncpy(text, said, sizeof text - 1);
    status = wanted;
    armed = true;
    if (owner != getpid()) {
        error = start();
        if (error == 0)
            owner = getpid();
    }
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&mutex);
    return error;
}

void ddl_deadline_disarm(void)
{
    pthread_mutex_lock(&mutex);
    armed = false;
    if (owner == getpid())
        pthread_cond_signal(&changed);
    pthread_mutex_unlock(&mutex);
}
