//===- Queues.h - queues with functions of the host in them ---------------===//
//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// From LLVM 22 on a queue may have functions that the host calls, several threads may
// use one queue, and waiting for a queue leaves it in use (the Offload API). The
// library knows none of this; it is added here.
//
// A queue in which a function is enqueued gets a thread until it is empty again: a
// line. The thread waits for what stands before the function, calls it, and passes
// on what was enqueued behind it. Neither the caller nor another queue ever waits.
// The program's async info then leads to the line, by a pointer with its lowest bit
// set; the library's queue is in an async info of the line's own.
//
// Programs of OpenMP have none of this, and pay one test of a flag for it.
//
//===----------------------------------------------------------------------===//

#ifndef OMPTARGET_MPI_QUEUES_H
#define OMPTARGET_MPI_QUEUES_H

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

namespace {

/// True from when a queue may be used by several threads, or have functions in it.
std::atomic<bool> HasSharedQueues = false;

/// An event that stands in a line, as one that is recorded or waited for there.
struct LineEventTy {
  int32_t DeviceId;
  void *Event;
  /// Its recordings in lines that are not done yet.
  unsigned Unrecorded = 0;
  /// The program destroyed it: it goes with the last line that needs it.
  bool Destroyed = false;

  ~LineEventTy();
};

/// All events that stand in lines.
struct LineEventsTy {
  std::mutex Mutex;
  std::condition_variable Recorded;
  std::map<void *, std::weak_ptr<LineEventTy>> Events;

  /// The process ends with threads at work: this is never destroyed.
  static LineEventsTy &get() {
    static LineEventsTy &It = *new LineEventsTy;
    return It;
  }

  /// The event, if it stands in a line.
  std::shared_ptr<LineEventTy> find(void *Event) {
    if (!HasSharedQueues)
      return nullptr;
    std::lock_guard<std::mutex> Lock(Mutex);
    auto It = Events.find(Event);
    return It == Events.end() ? nullptr : It->second.lock();
  }

  /// The event, which stands in a line from now on; with Records as one to be recorded.
  std::shared_ptr<LineEventTy> hold(int32_t DeviceId, void *Event,
                                    bool Records) {
    std::lock_guard<std::mutex> Lock(Mutex);
    auto &Known = Events[Event];
    auto It = Known.lock();
    if (!It)
      Known = It =
          std::shared_ptr<LineEventTy>(new LineEventTy{DeviceId, Event});
    It->Unrecorded += Records;
    return It;
  }

  bool isRecorded(const LineEventTy &Event) {
    std::lock_guard<std::mutex> Lock(Mutex);
    return Event.Unrecorded == 0;
  }

  void waitUntilRecorded(const LineEventTy &Event) {
    std::unique_lock<std::mutex> Lock(Mutex);
    Recorded.wait(Lock, [&] { return Event.Unrecorded == 0; });
  }

  void noteRecorded(LineEventTy &Event) {
    std::lock_guard<std::mutex> Lock(Mutex);
    --Event.Unrecorded;
    Recorded.notify_all();
  }
};

LineEventTy::~LineEventTy() {
  auto &All = LineEventsTy::get();
  {
    std::lock_guard<std::mutex> Lock(All.Mutex);
    auto It = All.Events.find(Event);
    if (It != All.Events.end() && It->second.expired())
      All.Events.erase(It);
  }
  if (Destroyed)
    Library.destroy_event(DeviceId, Event);
}

/// The operations of a queue from its first function of the host on, and their thread.
class LineTy {
public:
  /// What an operation does with the line's async info.
  using OperationTy = std::function<Error(mpi::__tgt_async_info *)>;

  LineTy(int32_t DeviceId, void *Queue) : DeviceId(DeviceId) {
    Info.queue = Queue;
    Thread = std::thread([this] { run(); });
  }

  ~LineTy() {
    {
      std::lock_guard<std::mutex> Lock(Mutex);
      Stops = true;
    }
    Changed.notify_all();
    Thread.join();
    consumeError(std::move(Failure));
  }

  const int32_t DeviceId;

  /// Adds an operation, one that records an event if that is given. With Always it is done
  /// also behind a failure. Returns its number.
  uint64_t add(OperationTy Do, std::shared_ptr<LineEventTy> Records = nullptr,
               bool Always = false) {
    std::lock_guard<std::mutex> Lock(Mutex);
    Operations.push_back({std::move(Do), std::move(Records), Always});
    Changed.notify_all();
    return ++Added;
  }

  /// Waits until all that the line has now is done.
  Error wait() {
    if (std::this_thread::get_id() == Thread.get_id())
      return fail(
          ErrorCode::INVALID_ARGUMENT,
          "a function that stands in a queue can't wait for this queue");
    // Behind a failure too: nothing is copied to the program's memory any more when this
    // returns.
    uint64_t Last = add(
        [this](mpi::__tgt_async_info *Info) {
          return check(Library.synchronize(DeviceId, Info),
                       "waiting for a queue");
        },
        /*Records=*/nullptr, /*Always=*/true);
    std::unique_lock<std::mutex> Lock(Mutex);
    Changed.wait(Lock, [&] { return Done >= Last; });
    return takeFailure();
  }

  /// True if nothing is left to be done.
  Expected<bool> isDone() {
    std::lock_guard<std::mutex> Lock(Mutex);
    if (Done != Added)
      return false;
    // The thread has nothing to do, and so does not use this.
    Error Err =
        joinErrors(takeFailure(), check(Library.query_async(DeviceId, &Info),
                                        "querying a queue"));
    if (Err)
      return std::move(Err);
    return Info.queue == nullptr;
  }

private:
  struct EntryTy {
    OperationTy Do;
    std::shared_ptr<LineEventTy> Records;
    bool Always = false;
  };

  /// What the thread does.
  void run() {
    std::unique_lock<std::mutex> Lock(Mutex);
    for (;;) {
      Changed.wait(Lock, [&] { return Stops || !Operations.empty(); });
      if (Operations.empty())
        return;
      EntryTy Entry = std::move(Operations.front());
      Operations.pop_front();
      bool Skips = bool(Failure) && !Entry.Always;
      Lock.unlock();
      // Behind a failure nothing is done, and no function called. Events count as reached,
      // for nobody to wait for ever.
      Error Err = Skips ? Plugin::success() : Entry.Do(&Info);
      if (Entry.Records)
        LineEventsTy::get().noteRecorded(*Entry.Records);
      Entry = {};
      Lock.lock();
      Failure = joinErrors(std::move(Failure), std::move(Err));
      ++Done;
      Changed.notify_all();
    }
  }

  Error takeFailure() {
    Error Taken = std::move(Failure);
    Failure = Plugin::success();
    return Taken;
  }

  std::mutex Mutex;
  std::condition_variable Changed;
  std::deque<EntryTy> Operations;
  uint64_t Added = 0;
  uint64_t Done = 0;
  bool Stops = false;
  Error Failure = Plugin::success();
  mpi::__tgt_async_info Info = {};
  std::thread Thread;
};

/// All lines.
struct LinesTy {
  std::mutex Mutex;
  DenseMap<LineTy *, std::shared_ptr<LineTy>> Lines;

  static LinesTy &get() {
    static LinesTy &It = *new LinesTy;
    return It;
  }

  /// The line that an async info leads to, if to any. Under QueueLockTy.
  std::shared_ptr<LineTy> find(const __tgt_async_info *AsyncInfo) {
    uintptr_t Queue = reinterpret_cast<uintptr_t>(AsyncInfo->Queue);
    if (!(Queue & Mark))
      return nullptr;
    std::lock_guard<std::mutex> Lock(Mutex);
    return Lines.lookup(reinterpret_cast<LineTy *>(Queue - Mark));
  }

  /// The same; the queue gets a line if it has none.
  std::shared_ptr<LineTy> make(int32_t DeviceId, __tgt_async_info *AsyncInfo) {
    if (auto Line = find(AsyncInfo))
      return Line;
    auto Line = std::make_shared<LineTy>(DeviceId, AsyncInfo->Queue);
    AsyncInfo->Queue = reinterpret_cast<void *>(
        reinterpret_cast<uintptr_t>(Line.get()) + Mark);
    std::lock_guard<std::mutex> Lock(Mutex);
    Lines[Line.get()] = Line;
    return Line;
  }

  /// The async info leads to no line from now on. Under QueueLockTy.
  void remove(LineTy &Line, __tgt_async_info *AsyncInfo) {
    AsyncInfo->Queue = nullptr;
    std::lock_guard<std::mutex> Lock(Mutex);
    Lines.erase(&Line);
  }

  /// Waits for all lines of a device, which end.
  Error end(int32_t DeviceId) {
    SmallVector<std::shared_ptr<LineTy>> Ending;
    {
      std::lock_guard<std::mutex> Lock(Mutex);
      for (auto &Known : Lines)
        if (Known.second->DeviceId == DeviceId)
          Ending.push_back(Known.second);
      for (auto &Line : Ending)
        Lines.erase(Line.get());
    }
    Error Err = Plugin::success();
    for (auto &Line : Ending)
      Err = joinErrors(std::move(Err), Line->wait());
    return Err;
  }

private:
  static constexpr uintptr_t Mark = 1;
};

/// Holds an async info for a short time, if several threads may use it.
class QueueLockTy {
public:
  explicit QueueLockTy(const __tgt_async_info *AsyncInfo) {
    if (!HasSharedQueues)
      return;
    static std::mutex *All = new std::mutex[Number];
    Lock = std::unique_lock<std::mutex>(
        All[(reinterpret_cast<uintptr_t>(AsyncInfo) >> 6) % Number]);
  }

private:
  static constexpr size_t Number = 61;
  std::unique_lock<std::mutex> Lock;
};

/// True if all that is in a queue is done; then the async info leads nowhere.
Expected<bool> isQueueDone(int32_t DeviceId, __tgt_async_info *AsyncInfo) {
  std::shared_ptr<LineTy> Line; // Ends, if it does, without the lock.
  QueueLockTy Lock(AsyncInfo);
  Line = LinesTy::get().find(AsyncInfo);
  if (!Line) {
    if (Error Err = check(Library.query_async(DeviceId, asMPI(AsyncInfo)),
                          "querying a queue"))
      return std::move(Err);
    return AsyncInfo->Queue == nullptr;
  }
  Expected<bool> IsDone = Line->isDone();
  if (IsDone && *IsDone)
    LinesTy::get().remove(*Line, AsyncInfo);
  return IsDone;
}

/// Does an operation of a queue, or leaves it to the queue's line.
template <typename OperationTy>
Error inQueue(__tgt_async_info *AsyncInfo, OperationTy Do) {
  QueueLockTy Lock(AsyncInfo);
  if (auto Line = LinesTy::get().find(AsyncInfo)) {
    Line->add(std::move(Do));
    return Plugin::success();
  }
  return Do(asMPI(AsyncInfo));
}

/// Waits for what a queue has now. With Release the queue is given up, else it stays in use.
Error synchronizeQueue(int32_t DeviceId, __tgt_async_info *AsyncInfo,
                       bool Release) {
  const char *What = "waiting for a queue";
  if (!HasSharedQueues)
    return check(Library.synchronize(DeviceId, asMPI(AsyncInfo)), What);

  std::shared_ptr<LineTy> Line;
  void *Event = nullptr;
  mpi::__tgt_async_info Released = {};
  {
    QueueLockTy Lock(AsyncInfo);
    Line = LinesTy::get().find(AsyncInfo);
    if (!Line && Release)
      std::swap(Released.queue, AsyncInfo->Queue);
    else if (!Line) {
      // Other threads go on with the queue.
      if (Error Err = check(Library.create_event(DeviceId, &Event), What))
        return Err;
      if (Error Err = check(
              Library.record_event(DeviceId, Event, asMPI(AsyncInfo)), What)) {
        Library.destroy_event(DeviceId, Event);
        return Err;
      }
    }
  }
  if (Released.queue)
    return check(Library.synchronize(DeviceId, &Released), What);
  Error Err = Plugin::success();
  if (Line)
    Err = Line->wait();
  if (Event) {
    Err = check(Library.sync_event(DeviceId, Event), What);
    Library.destroy_event(DeviceId, Event);
  }
  // Gives an empty queue back, and reports what failed in it.
  return joinErrors(std::move(Err),
                    isQueueDone(DeviceId, AsyncInfo).takeError());
}

} // namespace

#endif // OMPTARGET_MPI_QUEUES_H
