#!/usr/bin/env bash
# A Slurm of one node on this machine, for the tests: `cluster.sh start FOLDER`, `cluster.sh stop FOLDER`. Needs root and
# the packages slurm-wlm and munge. Everything it writes is in FOLDER, except munge's key and the host's own name.
set -euo pipefail
command=$1
home=$(realpath -m "$2")
host=$(hostname -s)
export SLURM_CONF=$home/slurm.conf

alive() { [ -s "$1" ] && kill -0 "$(cat "$1")" 2>/dev/null; }

stop() {
  for name in slurmd slurmctld munged; do
    if alive "$home/$name.pid"; then
      kill "$(cat "$home/$name.pid")"
      for _ in $(seq 100); do alive "$home/$name.pid" || break; sleep 0.1; done
    fi
  done
}

write_configuration() {
  mkdir -p "$home"/{state,spool,log}
  local memory=$(($(awk '/MemTotal/ {print $2}' /proc/meminfo) / 1024 * 9 / 10))
  # Two tasks at a time whatever the machine has: CPUs are counted, not bound.
  cat >"$SLURM_CONF" <<CONFIGURATION
ClusterName=ngntest
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
AuthType=auth/munge
AuthInfo=socket=$home/munge.socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$home/state
SlurmdSpoolDir=$home/spool
SlurmctldPidFile=$home/slurmctld.pid
SlurmdPidFile=$home/slurmd.pid
SlurmctldLogFile=$home/log/slurmctld.log
SlurmdLogFile=$home/log/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,sched_min_interval=0,bf_interval=1
ReturnToService=2
JobRequeue=1
MaxArraySize=1001
SlurmdTimeout=300
KillWait=5
MinJobAge=300
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=$host NodeAddr=127.0.0.1 CPUs=2 Gres=gpu:1 RealMemory=$memory State=UNKNOWN
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=main Nodes=$host Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO GraceTime=${NGN_SLURM_GRACE:-0}
PartitionName=urgent Nodes=$host PriorityTier=2 MaxTime=INFINITE State=UP OverSubscribe=NO
CONFIGURATION
  echo "NodeName=$host Name=gpu File=/dev/null" >"$home/gres.conf"  # counted and told to jobs, as a card is
}

start() {
  port=${NGN_SLURM_PORT:-16817}
  write_configuration
  getent hosts "$host" >/dev/null || echo "127.0.0.1 $host" >>/etc/hosts
  # munge refuses folders that others may write, and a key that others may read.
  mkdir -p "$home/munge" && chown munge:munge "$home/munge" && chmod 0711 "$home/munge"
  if [ ! -s "$home/munge/key" ]; then
    dd if=/dev/urandom of="$home/munge/key" bs=1024 count=1 status=none
    chown munge:munge "$home/munge/key" && chmod 400 "$home/munge/key"
  fi
  alive "$home/munged.pid" || munged --force --key-file="$home/munge/key" --socket="$home/munge.socket" \
    --pid-file="$home/munged.pid" --log-file="$home/log/munged.log" --seed-file="$home/munge/seed"
  alive "$home/slurmctld.pid" || slurmctld -f "$SLURM_CONF"
  alive "$home/slurmd.pid" || slurmd -f "$SLURM_CONF"
  for _ in $(seq 150); do
    if sinfo --noheader --format=%T 2>/dev/null | grep -q idle; then
      return 0
    fi
    sleep 0.2
  done
  echo "Slurm did not come up:" >&2
  sinfo >&2 || true
  tail -n 20 "$home"/log/*.log >&2
  return 1
}

case $command in
  start) start ;;
  stop) stop ;;
  *) echo "cluster.sh start|stop FOLDER" >&2; exit 2 ;;
esac
