/* CPUs: how many this process may keep busy, by its affinity and by the quota of its control groups (containers). */
#include "internal.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LONGEST_PATH = 4096 };

static double least(double a, double b)
{
    return a < b ? a : b;
}

/* The first line of a file, without its end; 0 when there is none. */
static int read_line(const char *folder, const char *name, char *line, int size)
{
    char path[2 * LONGEST_PATH];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return 0;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    int found = fgets(line, size, file) != NULL;
    fclose(file);
    if (found)
        line[strcspn(line, "\n")] = '\0';
    return found;
}

/* CPUs' worth of time that one group allows, INFINITY when it sets no limit. Version 2: "cpu.max" holds "quota period"
 * or "max period". Version 1: each is a file of its own, and a quota of -1 is no limit. */
static double limit_of_group(const char *folder, int version)
{
    char line[64];
    long long quota = -1, period = 0;
    if (version == 2) {
        if (!read_line(folder, "cpu.max", line, sizeof line) || sscanf(line, "%lld %lld", &quota, &period) != 2)
            return INFINITY;
    } else {
        if (!read_line(folder, "cpu.cfs_quota_us", line, sizeof line))
            return INFINITY;
        quota = atoll(line);
        if (!read_line(folder, "cpu.cfs_period_us", line, sizeof line))
            return INFINITY;
        period = atoll(line);
    }
    return quota > 0 && period > 0 ? (double)quota / (double)period : INFINITY;
}

/* The least limit of a group and those around it. In a container the path may be the host's, of which only an end, or
 * nothing, is to be seen below the mount: folders that are not there set no limit. */
static double limit_of_path(const char *mount, char *path, int version)
{
    char folder[LONGEST_PATH];
    double limit = INFINITY;
    for (;;) {
        if (snprintf(folder, sizeof folder, "%s%s", mount, path) < (int)sizeof folder)
            limit = least(limit, limit_of_group(folder, version));
        char *slash = strrchr(path, '/');
        if (slash == NULL)
            return limit;
        *slash = '\0';
    }
}

static int names_cpu(char *controllers)
{
    for (char *rest = controllers, *name; (name = strsep(&rest, ",")) != NULL;)
        if (strcmp(name, "cpu") == 0)
            return 1;
    return 0;
}

/* `membership` has a line "number:controllers:path" for each hierarchy; version 2 is number 0 and names none. */
int pb_cgroup_cpus(const char *membership, const char *mount)
{
    char line[LONGEST_PATH], base[LONGEST_PATH];
    double limit = INFINITY;
    FILE *file = fopen(membership, "re");
    if (file == NULL)
        return PB_MAX_THREADS;
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *path = line, *number = strsep(&path, ":"), *controllers = strsep(&path, ":");
        if (path == NULL)
            continue;
        if (strcmp(number, "0") == 0 && *controllers == '\0') {
            limit = least(limit, limit_of_path(mount, path, 2));
        } else {
            int length = snprintf(base, sizeof base, "%s/%s", mount, controllers); /* mounted as "cpu,cpuacct", say */
            if (length < (int)sizeof base && names_cpu(controllers))
                limit = least(limit, limit_of_path(base, path, 1));
        }
    }
    fclose(file);
    int whole = limit < PB_MAX_THREADS ? (int)limit : PB_MAX_THREADS;
    return whole < limit && whole < PB_MAX_THREADS ? whole + 1 : whole; /* part of a CPU counts as one */
}

int pb_usable_cpus(void)
{
    long cpus = 0;
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        cpus = CPU_COUNT(&set);
#endif
    if (cpus < 1)
        cpus = sysconf(_SC_NPROCESSORS_ONLN);
#if defined(__linux__)
    int allowed = pb_cgroup_cpus("/proc/self/cgroup", "/sys/fs/cgroup");
    cpus = cpus < allowed ? cpus : allowed;
#endif
    return cpus < 1 ? 1 : cpus > PB_MAX_THREADS ? PB_MAX_THREADS : (int)cpus;
}
