//===- rtl.cpp - omptarget-mpi as a plugin of LLVM's offload build --------===//
//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// From LLVM 19 on plugins are classes inside libomptarget. These here hand every
// call on to libomptarget.rtl.mpi.so, which is loaded when a process turns out to
// be part of an MPI job, and which has all the logic.
//
// The interface changes with every release: what differs is shown by
// LLVM_VERSION_MAJOR, parameters that were added by the macros SINCE_NN.
//
//===----------------------------------------------------------------------===//

#include "GlobalHandler.h"
#include "PluginInterface.h"
#include "Shared/Environment.h"
#include "Utils/ELF.h"
#include "omptarget.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Frontend/OpenMP/OMPGridValues.h"
#include "llvm/Object/ELFObjectFile.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/TargetParser/Host.h"

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

namespace mpi {
#include "omptarget-mpi.h"
} // namespace mpi

using namespace llvm;
using namespace llvm::omp;
using namespace llvm::omp::target::plugin;

#if LLVM_VERSION_MAJOR >= 22
#define SINCE_22(...) , __VA_ARGS__
#else
#define SINCE_22(...)
#endif
#if LLVM_VERSION_MAJOR >= 23
#define SINCE_23(...) , __VA_ARGS__
#else
#define SINCE_23(...)
#endif

namespace {

//===----------------------------------------------------------------------===//
// The library
//===----------------------------------------------------------------------===//

/// What is called of libomptarget.rtl.mpi.so, without the prefix __tgt_rtl_.
#define FOR_EACH_FUNCTION(X)                                                   \
  X(create_event)                                                              \
  X(data_alloc)                                                                \
  X(data_delete)                                                               \
  X(data_exchange_async)                                                       \
  X(data_lock)                                                                 \
  X(data_retrieve_async)                                                       \
  X(data_submit_async)                                                         \
  X(data_unlock)                                                               \
  X(deinit_device)                                                             \
  X(destroy_event)                                                             \
  X(get_function)                                                              \
  X(get_global)                                                                \
  X(init_device)                                                               \
  X(init_device_info)                                                          \
  X(is_valid_binary)                                                           \
  X(launch_kernel)                                                             \
  X(mpi_data_fill_async)                                                       \
  X(mpi_device_info)                                                           \
  X(mpi_is_for_device)                                                         \
  X(mpi_load_binary)                                                           \
  X(mpi_machine)                                                               \
  X(mpi_query_event)                                                           \
  X(mpi_redirect)                                                              \
  X(mpi_unload_binary)                                                         \
  X(number_of_devices)                                                         \
  X(query_async)                                                               \
  X(record_event)                                                              \
  X(register_lib)                                                              \
  X(sync_event)                                                                \
  X(synchronize)                                                               \
  X(unregister_lib)                                                            \
  X(wait_event)

#if LLVM_VERSION_MAJOR >= 21
using error::ErrorCode;
#else
/// Errors have codes from LLVM 21 on.
enum class ErrorCode {
  UNKNOWN,
  INVALID_ARGUMENT,
  INVALID_BINARY,
  NOT_FOUND,
  OUT_OF_RESOURCES,
  UNSUPPORTED
};
#endif

/// An error of this plugin.
template <typename... ArgsTy>
Error fail([[maybe_unused]] ErrorCode Code, const char *Format,
           ArgsTy... Args) {
#if LLVM_VERSION_MAJOR >= 21
  return Plugin::error(Code, Format, Args...);
#else
  return Plugin::error(Format, Args...);
#endif
}

/// The functions of libomptarget.rtl.mpi.so.
struct LibraryTy {
#define DECLARE(Name) decltype(mpi::__tgt_rtl_##Name) *Name = nullptr;
  FOR_EACH_FUNCTION(DECLARE)
#undef DECLARE

  /// Finds the library beside libomptarget, or where the loader looks else.
  Error load() {
    const char *File = "libomptarget.rtl.mpi.so";
    void *Handle = dlopen(File, RTLD_NOW | RTLD_LOCAL);
    if (!Handle)
      return fail(ErrorCode::UNKNOWN, "%s", dlerror());
#define FIND(Name)                                                             \
  Name = reinterpret_cast<decltype(Name)>(dlsym(Handle, "__tgt_rtl_" #Name));  \
  if (!Name)                                                                   \
    return fail(ErrorCode::UNKNOWN, "%s has no __tgt_rtl_" #Name, File);
    FOR_EACH_FUNCTION(FIND)
#undef FIND
    return Plugin::success();
  }
};

LibraryTy Library;

/// Turns the status of a call into an error. The library has reported on stderr
/// what failed, where and why.
Error check(int32_t Status, const char *What) {
  if (Status == OFFLOAD_SUCCESS)
    return Plugin::success();
  return fail(ErrorCode::UNKNOWN, "%s failed on an MPI device, see above",
              What);
}

mpi::__tgt_async_info *asMPI(__tgt_async_info *AsyncInfo) {
  return reinterpret_cast<mpi::__tgt_async_info *>(AsyncInfo);
}

/// An image as the library takes it.
mpi::__tgt_device_image
asMPI(const void *Start, size_t Size,
      MutableArrayRef<mpi::__tgt_offload_entry> Entries = {}) {
  char *Bytes = static_cast<char *>(const_cast<void *>(Start));
  return {Bytes, Bytes + Size, Entries.begin(), Entries.end()};
}

} // namespace

#if LLVM_VERSION_MAJOR >= 22
#include "Queues.h"
#endif

namespace {

#if LLVM_VERSION_MAJOR < 22
/// Does an operation of a queue.
template <typename OperationTy>
Error inQueue(__tgt_async_info *AsyncInfo, OperationTy Do) {
  return Do(asMPI(AsyncInfo));
}
#endif

/// True if this process may have MPI devices.
bool mayHaveDevices() {
  for (StringRef Name : split(OMPTARGET_MPI_VARIABLES, ' '))
    if (std::getenv(Name.str().c_str()))
      return true;
  return false;
}

/// The number of MPI devices. The first call loads the library and starts them.
int32_t numberOfDevices() {
  static const int32_t Number = [] {
    if (!mayHaveDevices())
      return 0;
    if (Error Err = Library.load()) {
      std::string Why = toString(std::move(Err));
#ifdef OMPTARGET_MPI_HAS_LIBRARY
      // LLVM would go on with other devices and not say why.
      errs() << "omptarget-mpi: warning: no MPI devices: " << Why << "\n";
#endif
      return 0;
    }
    return Library.number_of_devices();
  }();
  return Number;
}

//===----------------------------------------------------------------------===//
// Images and kernels
//===----------------------------------------------------------------------===//

struct MPIDeviceImageTy final : public DeviceImageTy {
  using DeviceImageTy::DeviceImageTy;
  mpi::__tgt_device_binary Binary = {};
};

/// A kernel is called once for each launch, whatever number of groups and threads is
/// asked for: how many threads there are is libomp's business.
[[maybe_unused]] constexpr uint64_t MaxGroupSize = 1;

struct MPIKernelTy final : public GenericKernelTy {
  using GenericKernelTy::GenericKernelTy;

  Error initImpl(GenericDeviceTy &Device, DeviceImageTy &Image) override {
    // The library would report what may well be absent.
    if (!Device.Plugin.getGlobalHandler().isSymbolInImage(Device, Image,
                                                          getName()))
      return fail(ErrorCode::NOT_FOUND, "an image has no kernel '%s'",
                  getName());
    KernelEnvironment.Configuration.ExecMode = OMP_TGT_EXEC_MODE_GENERIC;
    MaxNumThreads = 1;
    return check(
        Library.get_function(static_cast<MPIDeviceImageTy &>(Image).Binary,
                             getName(), &Entry),
        "finding a kernel");
  }

#if LLVM_VERSION_MAJOR >= 20
#define GRID uint32_t[3], uint32_t[3]
#else
#define GRID uint32_t, uint64_t
#endif
  Error launchImpl(GenericDeviceTy &Device, GRID SINCE_23(uint32_t),
                   KernelArgsTy &KernelArgs, KernelLaunchParamsTy LaunchParams,
                   AsyncInfoWrapperTy &AsyncInfo) const override {
#if LLVM_VERSION_MAJOR >= 23
    SmallVector<void *, 16> Args;
    for (void *Arg : ArrayRef(LaunchParams.Args, LaunchParams.NumArgs))
      Args.push_back(*static_cast<void **>(Arg));
#else
    // Of the Offload API the last may have less than its eight bytes.
    SmallVector<void *, 16> Args(divideCeil(LaunchParams.Size, sizeof(void *)));
    if (!Args.empty())
      std::memcpy(Args.data(), LaunchParams.Data, LaunchParams.Size);
    // A program of clang 23 or later: the launch environment, which this library puts first, has a
    // place at the end already.
    if (KernelArgs.Version >= 5 && !Args.empty())
      Args.erase(Args.begin());
#endif
    // The rest says in which shape an accelerator runs it.
    KernelArgsTy Kernel = KernelArgs;
    Kernel.NumArgs = uint32_t(Args.size());
    return inQueue(AsyncInfo, [DeviceId = Device.getDeviceId(), Entry = Entry,
                               Args = std::move(Args),
                               Kernel](mpi::__tgt_async_info *Info) mutable {
      return check(Library.launch_kernel(
                       DeviceId, Entry, Args.data(), /*offsets=*/nullptr,
                       reinterpret_cast<mpi::KernelArgs *>(&Kernel), Info),
                   "launching a kernel");
    });
  }

#if LLVM_VERSION_MAJOR >= 22
  Expected<uint64_t> maxGroupSize(GenericDeviceTy &, uint64_t) const override {
    return MaxGroupSize;
  }
#endif

private:
  void *Entry = nullptr;
};

//===----------------------------------------------------------------------===//
// Devices
//===----------------------------------------------------------------------===//

/// As for LLVM's host devices: how many threads there are is libomp's business.
constexpr GV MPIGridValues = {1, 1, 1, 1, 1, 1, 1};

/// What the library reports about a device.
struct PropertiesTy {
  void add(const char *Name, std::string Value) {
    Values[Name] = std::move(Value);
  }

  const std::string &text(const char *Name) { return Values[Name]; }

  /// The number that a value begins with; 0 if there is none.
  uint64_t number(const char *Name) {
    StringRef Value = Values[Name];
    uint64_t Number = 0;
    return Value.consumeInteger(10, Number) ? 0 : Number;
  }

private:
  StringMap<std::string> Values;
};

struct MPIDeviceTy final : public GenericDeviceTy {
  MPIDeviceTy(GenericPluginTy &Plugin, int32_t DeviceId, int32_t NumDevices)
      : GenericDeviceTy(Plugin, DeviceId, NumDevices, MPIGridValues) {}

  Error initImpl(GenericPluginTy &) override {
    return check(Library.init_device(DeviceId), "starting");
  }
  Error deinitImpl() override {
#if LLVM_VERSION_MAJOR >= 22
    if (Error Err = LinesTy::get().end(DeviceId))
      consumeError(std::move(Err)); // Of queues that nobody waits for.
#endif
    return check(Library.deinit_device(DeviceId), "ending");
  }
  Error setContext() override { return Plugin::success(); }
  std::string getComputeUnitKind() const override { return "mpi"; }

  // Images.

#if LLVM_VERSION_MAJOR >= 22
  Expected<DeviceImageTy *>
  loadBinaryImpl(std::unique_ptr<MemoryBuffer> &&TgtImage,
                 int32_t ImageId) override {
    return load(ImageId, std::move(TgtImage));
  }
#elif LLVM_VERSION_MAJOR >= 20
  Expected<DeviceImageTy *> loadBinaryImpl(const __tgt_device_image *TgtImage,
                                           int32_t ImageId) override {
    // In the layout of earlier releases, which the library knows.
    SmallVector<mpi::__tgt_offload_entry> Entries;
    for (const auto &E : ArrayRef(TgtImage->EntriesBegin, TgtImage->EntriesEnd))
      Entries.push_back({E.Address, E.SymbolName, size_t(E.Size),
                         int32_t(E.Flags), int32_t(E.Data)});
    return load(ImageId, TgtImage, Entries);
  }
#else
  Expected<DeviceImageTy *> loadBinaryImpl(const __tgt_device_image *TgtImage,
                                           int32_t ImageId) override {
    MutableArrayRef Entries(TgtImage->EntriesBegin, TgtImage->EntriesEnd);
    return load(ImageId, TgtImage,
                {reinterpret_cast<mpi::__tgt_offload_entry *>(Entries.data()),
                 Entries.size()});
  }
#endif

#if LLVM_VERSION_MAJOR >= 21
  Error unloadBinaryImpl(DeviceImageTy *Image) override {
    auto *MPIImage = static_cast<MPIDeviceImageTy *>(Image);
    Error Err = check(Library.mpi_unload_binary(MPIImage->Binary),
                      "unloading an image");
    MPIImage->~MPIDeviceImageTy();
    return Err;
  }
#endif

  Expected<GenericKernelTy &> constructKernel(const char *Name) override {
    return *new (Plugin.allocate<MPIKernelTy>()) MPIKernelTy(Name);
  }

  // Memory.

#if LLVM_VERSION_MAJOR >= 22
  Expected<void *> allocate(size_t Size, void *HostPtr,
                            TargetAllocTy Kind SINCE_23(size_t)) override {
    if (void *Ptr = Library.data_alloc(DeviceId, Size, HostPtr, Kind))
      return Ptr;
    if (Kind == TARGET_ALLOC_SHARED)
      return fail(ErrorCode::UNSUPPORTED,
                  "no memory can be shared with an MPI device, see above");
    return fail(ErrorCode::OUT_OF_RESOURCES,
                "no room for %zu bytes on an MPI device, see above", Size);
  }
  Error free(void *TgtPtr, TargetAllocTy Kind) override {
    return check(Library.data_delete(DeviceId, TgtPtr, Kind), "freeing");
  }
#else
  void *allocate(size_t Size, void *HostPtr, TargetAllocTy Kind) override {
    return Library.data_alloc(DeviceId, Size, HostPtr, Kind);
  }
  int free(void *TgtPtr, TargetAllocTy Kind) override {
    return Library.data_delete(DeviceId, TgtPtr, Kind);
  }
#endif

  Expected<void *> dataLockImpl(void *HstPtr, int64_t Size) override {
    void *Locked = nullptr;
    if (Error Err = check(Library.data_lock(DeviceId, HstPtr, Size, &Locked),
                          "locking host memory"))
      return std::move(Err);
    return Locked;
  }
  Error dataUnlockImpl(void *HstPtr) override {
    return check(Library.data_unlock(DeviceId, HstPtr),
                 "unlocking host memory");
  }
  Expected<bool> isPinnedPtrImpl(void *, void *&, void *&,
                                 size_t &) const override {
    return false;
  }

  // Transfers.

#if LLVM_VERSION_MAJOR >= 22
  /// Where libomptarget believes the variable of a device's runtime to be that says
  /// which functions kernels call by their addresses in the program.
  void *environment() { return &Environment; }
#endif

  Error dataSubmitImpl(void *TgtPtr, const void *HstPtr, int64_t Size,
                       AsyncInfoWrapperTy &AsyncInfo) override {
#if LLVM_VERSION_MAJOR >= 22
    if (TgtPtr == &Environment) {
      std::memcpy(&Environment, HstPtr, sizeof(Environment));
      return check(Library.mpi_redirect(DeviceId, Environment.IndirectCallTable,
                                        Environment.IndirectCallTableSize),
                   "making functions callable");
    }
#endif
    return inQueue(
        AsyncInfo, [this, TgtPtr, HstPtr, Size](mpi::__tgt_async_info *Info) {
          return check(Library.data_submit_async(DeviceId, TgtPtr,
                                                 const_cast<void *>(HstPtr),
                                                 Size, Info),
                       "copying to the device");
        });
  }
  Error dataRetrieveImpl(void *HstPtr, const void *TgtPtr, int64_t Size,
                         AsyncInfoWrapperTy &AsyncInfo) override {
    return inQueue(
        AsyncInfo, [this, HstPtr, TgtPtr, Size](mpi::__tgt_async_info *Info) {
          return check(Library.data_retrieve_async(DeviceId, HstPtr,
                                                   const_cast<void *>(TgtPtr),
                                                   Size, Info),
                       "copying from the device");
        });
  }
  Error dataExchangeImpl(const void *SrcPtr, GenericDeviceTy &DstDev,
                         void *DstPtr, int64_t Size,
                         AsyncInfoWrapperTy &AsyncInfo) override {
    int32_t DstId = DstDev.getDeviceId();
    return inQueue(AsyncInfo, [this, SrcPtr, DstId, DstPtr,
                               Size](mpi::__tgt_async_info *Info) {
      return check(Library.data_exchange_async(DeviceId,
                                               const_cast<void *>(SrcPtr),
                                               DstId, DstPtr, Size, Info),
                   "copying between devices");
    });
  }
#if LLVM_VERSION_MAJOR >= 22
  Error dataFillImpl(void *TgtPtr, const void *PatternPtr, int64_t PatternSize,
                     int64_t Size, AsyncInfoWrapperTy &AsyncInfo) override {
    // The pattern is the caller's again when this returns.
    const char *Start = static_cast<const char *>(PatternPtr);
    SmallVector<char, 16> Pattern(Start, Start + PatternSize);
    return inQueue(AsyncInfo, [this, TgtPtr, Pattern,
                               Size](mpi::__tgt_async_info *Info) {
      return check(Library.mpi_data_fill_async(DeviceId, TgtPtr, Pattern.data(),
                                               Pattern.size(), Size, Info),
                   "filling device memory");
    });
  }
  Error dataFence(__tgt_async_info *) override {
    return Plugin::success(); // A queue's operations are done in their order.
  }
#endif

  // Queues.

#if LLVM_VERSION_MAJOR >= 22
  Error synchronizeImpl(__tgt_async_info &AsyncInfo, bool Release) override {
    return synchronizeQueue(DeviceId, &AsyncInfo, Release);
  }
  Error queryAsyncImpl(
      __tgt_async_info &AsyncInfo SINCE_23(bool, bool *IsDone)) override {
    Expected<bool> Done = isQueueDone(DeviceId, &AsyncInfo);
#if LLVM_VERSION_MAJOR >= 23
    if (Done && IsDone)
      *IsDone = *Done;
#endif
    return Done.takeError();
  }
  Expected<bool> hasPendingWorkImpl(AsyncInfoWrapperTy &AsyncInfo) override {
    Expected<bool> Done = isQueueDone(DeviceId, AsyncInfo);
    if (!Done)
      return Done.takeError();
    return !*Done;
  }
  Error enqueueHostCallImpl(void (*Callback)(void *), void *UserData,
                            AsyncInfoWrapperTy &AsyncInfo) override {
    HasSharedQueues = true;
    QueueLockTy Lock(AsyncInfo);
    LinesTy::get()
        .make(DeviceId, AsyncInfo)
        ->add([this, Callback, UserData](mpi::__tgt_async_info *Info) {
          if (Error Err = check(Library.synchronize(DeviceId, Info),
                                "waiting for a queue"))
            return Err;
          Callback(UserData);
          return Plugin::success();
        });
    return Plugin::success();
  }
  Error initAsyncInfoImpl(AsyncInfoWrapperTy &) override {
    // A queue of the Offload API; its first operation makes the library's.
    HasSharedQueues = true;
    return Plugin::success();
  }
#else
  Error synchronizeImpl(__tgt_async_info &AsyncInfo) override {
    return check(Library.synchronize(DeviceId, asMPI(&AsyncInfo)),
                 "waiting for a queue");
  }
  Error queryAsyncImpl(__tgt_async_info &AsyncInfo) override {
    return check(Library.query_async(DeviceId, asMPI(&AsyncInfo)),
                 "querying a queue");
  }
  Error initAsyncInfoImpl(AsyncInfoWrapperTy &) override {
    return Plugin::success(); // The first operation makes the queue.
  }
#endif

#if LLVM_VERSION_MAJOR < 22
  Error initDeviceInfoImpl(__tgt_device_info *Info) override {
    const char *Unused = nullptr;
    return check(Library.init_device_info(
                     DeviceId, reinterpret_cast<mpi::__tgt_device_info *>(Info),
                     &Unused),
                 "making an interop object");
  }
#endif

  // Events.

  Error createEventImpl(void **EventPtr SINCE_23(bool)) override {
    return check(Library.create_event(DeviceId, EventPtr), "making an event");
  }
#if LLVM_VERSION_MAJOR >= 22
  Error destroyEventImpl(void *EventPtr SINCE_23(bool)) override {
    if (auto Event = LineEventsTy::get().find(EventPtr)) {
      Event->Destroyed = true;
      return Plugin::success();
    }
    return check(Library.destroy_event(DeviceId, EventPtr),
                 "destroying an event");
  }
  Error recordEventImpl(void *EventPtr,
                        AsyncInfoWrapperTy &AsyncInfo SINCE_23(bool)) override {
    auto Record = [this, EventPtr](mpi::__tgt_async_info *Info) {
      return check(Library.record_event(DeviceId, EventPtr, Info),
                   "recording an event");
    };
    QueueLockTy Lock(AsyncInfo);
    auto Line = LinesTy::get().find(AsyncInfo);
    if (!Line)
      return Record(asMPI(AsyncInfo));
    Line->add(Record,
              LineEventsTy::get().hold(DeviceId, EventPtr, /*Records=*/true));
    return Plugin::success();
  }
  Error waitEventImpl(void *EventPtr, AsyncInfoWrapperTy &AsyncInfo) override {
    auto Wait = [this, EventPtr](mpi::__tgt_async_info *Info) {
      return check(Library.wait_event(DeviceId, EventPtr, Info),
                   "waiting for an event");
    };
    auto &Events = LineEventsTy::get();
    auto Event = Events.find(EventPtr);
    QueueLockTy Lock(AsyncInfo);
    auto Line = LinesTy::get().find(AsyncInfo);
    if (!Line && (!Event || Events.isRecorded(*Event)))
      return Wait(asMPI(AsyncInfo));
    // What stands in one line and is not recorded yet makes a line of the other queue.
    Line = LinesTy::get().make(DeviceId, AsyncInfo);
    Event = Events.hold(DeviceId, EventPtr, /*Records=*/false);
    Line->add([Event, Wait](mpi::__tgt_async_info *Info) {
      LineEventsTy::get().waitUntilRecorded(*Event);
      return Wait(Info);
    });
    return Plugin::success();
  }
  Error syncEventImpl(void *EventPtr) override {
    if (auto Event = LineEventsTy::get().find(EventPtr))
      LineEventsTy::get().waitUntilRecorded(*Event);
    return check(Library.sync_event(DeviceId, EventPtr),
                 "waiting for an event");
  }
  Expected<bool> isEventCompleteImpl(void *EventPtr,
                                     AsyncInfoWrapperTy &) override {
    auto Event = LineEventsTy::get().find(EventPtr);
    if (Event && !LineEventsTy::get().isRecorded(*Event))
      return false;
    bool Complete = false;
    if (Error Err =
            check(Library.mpi_query_event(DeviceId, EventPtr, &Complete),
                  "querying an event"))
      return std::move(Err);
    return Complete;
  }
#else
  Error destroyEventImpl(void *EventPtr) override {
    return check(Library.destroy_event(DeviceId, EventPtr),
                 "destroying an event");
  }
  Error recordEventImpl(void *EventPtr,
                        AsyncInfoWrapperTy &AsyncInfo) override {
    return check(Library.record_event(DeviceId, EventPtr, asMPI(AsyncInfo)),
                 "recording an event");
  }
  Error waitEventImpl(void *EventPtr, AsyncInfoWrapperTy &AsyncInfo) override {
    return check(Library.wait_event(DeviceId, EventPtr, asMPI(AsyncInfo)),
                 "waiting for an event");
  }
  Error syncEventImpl(void *EventPtr) override {
    return check(Library.sync_event(DeviceId, EventPtr),
                 "waiting for an event");
  }
#endif
#if LLVM_VERSION_MAJOR >= 23
  Expected<float> getEventElapsedTimeImpl(void *, void *) override {
    return fail(ErrorCode::UNSUPPORTED, "events of MPI devices have no times");
  }
#endif

  // Properties.

#if LLVM_VERSION_MAJOR >= 21
  Expected<InfoTreeNode> obtainInfoImpl() override {
    InfoTreeNode Info;
    if (Error Err = obtainInfo(Info))
      return std::move(Err);
#if LLVM_VERSION_MAJOR >= 22
    addKeys(Info);
#endif
    return Info;
  }
#else
  Error obtainInfoImpl(InfoQueueTy &Info) override { return obtainInfo(Info); }
#endif

#if LLVM_VERSION_MAJOR < 22
  bool shouldSetupDeviceEnvironment() const override { return false; }
  bool shouldSetupDeviceMemoryPool() const override { return false; }
#endif
  Error getDeviceMemorySize(uint64_t &Value) override {
    PropertiesTy Properties;
    if (Error Err = obtainInfo(Properties))
      return Err;
    Value = Properties.number("Memory of the device") << 20;
    return Plugin::success();
  }
  Error getDeviceStackSize(uint64_t &Value) override { return noSize(Value); }
  Error setDeviceStackSize(uint64_t) override { return Plugin::success(); }
  Error getDeviceHeapSize(uint64_t &Value) override { return noSize(Value); }
  Error setDeviceHeapSize(uint64_t) override { return Plugin::success(); }

private:
#if LLVM_VERSION_MAJOR >= 22
  DeviceEnvironmentTy Environment = {};
#endif

  template <typename ImageTy>
  Expected<DeviceImageTy *>
  load(int32_t ImageId, ImageTy &&TgtImage,
       MutableArrayRef<mpi::__tgt_offload_entry> Entries = {}) {
    auto *Image = new (Plugin.allocate<MPIDeviceImageTy>())
        MPIDeviceImageTy(ImageId, *this, std::forward<ImageTy>(TgtImage));
    mpi::__tgt_device_image Whole =
        asMPI(Image->getStart(), Image->getSize(), Entries);
    if (!Library.is_valid_binary(&Whole))
      return fail(ErrorCode::INVALID_BINARY,
                  "an image is none for this machine");
    if (Error Err =
            check(Library.mpi_load_binary(DeviceId, &Whole, &Image->Binary),
                  "loading an image"))
      return std::move(Err);
    return Image;
  }

  template <typename InfoTy> Error obtainInfo(InfoTy &Info) {
    auto Add = [](void *To, const char *Name, const char *Value) {
      static_cast<InfoTy *>(To)->add(Name, std::string(Value));
    };
    return check(Library.mpi_device_info(DeviceId, Add, &Info),
                 "asking for properties");
  }

#if LLVM_VERSION_MAJOR >= 22
  /// Adds what the Offload API asks for, by its keys, to what the library reports.
  void addKeys(InfoTreeNode &Info) {
    PropertiesTy Known;
    consumeError(obtainInfo(Known));
    auto Add = [&](DeviceInfo Key, const char *Name, auto Value,
                   const char *Units = "") {
      Info.add(Name, Value, Units, Key);
    };
    auto AddDimensions = [&](DeviceInfo Key, const char *Name, uint64_t Each) {
      InfoTreeNode &Node = *Info.add(Name, std::monostate{}, "", Key);
      for (const char *Dimension : {"x", "y", "z"})
        Node.add(Dimension, Each);
    };
    Add(DeviceInfo::NAME, "Device Name",
        "MPI device " + std::to_string(DeviceId) + " (rank " +
            Known.text("Rank") + " on host " + Known.text("Host name") + ")");
    Add(DeviceInfo::PRODUCT_NAME, "Product Name", Known.text("Processor"));
    Add(DeviceInfo::VENDOR, "Vendor Name", Known.text("Processor vendor"));
    Add(DeviceInfo::VENDOR_ID, "Vendor ID",
        vendorId(Known.text("Processor vendor")));
    Add(DeviceInfo::DRIVER_VERSION, "Driver Version",
        "omptarget-mpi " + Known.text("Plugin version") + ", protocol " +
            Known.text("Protocol version") + ", " + Known.text("MPI library"));
    Add(DeviceInfo::NUM_COMPUTE_UNITS, "Compute Units", Known.number("Cores"));
    Add(DeviceInfo::MAX_CLOCK_FREQUENCY, "Max Clock Frequency",
        Known.number("Clock frequency"), "MHz");
    // Only root could read it, from the tables of the firmware.
    Add(DeviceInfo::MEMORY_CLOCK_RATE, "Memory Clock Rate", uint64_t(0), "MHz");
    Add(DeviceInfo::ADDRESS_BITS, "Address Bits", uint64_t(8 * sizeof(void *)),
        "bits");
    // All memory of a device can be reached by all of its threads.
    Add(DeviceInfo::WORK_GROUP_LOCAL_MEM_SIZE, "Work Group Local Memory",
        uint64_t(0), "B");
    Add(DeviceInfo::MAX_WORK_GROUP_SIZE, "Max Work Group Size", MaxGroupSize);
    AddDimensions(DeviceInfo::MAX_WORK_GROUP_SIZE_PER_DIMENSION,
                  "Max Work Group Size per Dimension", MaxGroupSize);
    Add(DeviceInfo::MAX_WORK_SIZE, "Max Work Size", MaxGroupSize);
    AddDimensions(DeviceInfo::MAX_WORK_SIZE_PER_DIMENSION,
                  "Max Work Size per Dimension", MaxGroupSize);
  }

  /// The number that the PCI-SIG has given to a processor's vendor; 0 if it has none here.
  static uint64_t vendorId(StringRef Vendor) {
    return StringSwitch<uint64_t>(Vendor)
        .Case("AuthenticAMD", 0x1022)
        .Case("GenuineIntel", 0x8086)
        .Case("HygonGenuine", 0x1d94)
        .Case("CentaurHauls", 0x1d17)
        .Case("Shanghai", 0x1d17)
        .Default(0);
  }
#endif

  static Error noSize(uint64_t &Value) {
    Value = 0;
    return Plugin::success();
  }
};

//===----------------------------------------------------------------------===//
// The plugin
//===----------------------------------------------------------------------===//

struct MPIGlobalHandlerTy final : public GenericGlobalHandlerTy {
  Error getGlobalMetadataFromDevice(GenericDeviceTy &Device,
                                    DeviceImageTy &Image,
                                    GlobalTy &Global) override {
#if LLVM_VERSION_MAJOR >= 22
    if (Global.getName() == "__omp_rtl_device_environment") {
      if (hasIndirectFunctions(Image))
        Global.setPtr(static_cast<MPIDeviceTy &>(Device).environment());
      return Global.getPtr() ? Plugin::success()
                             : fail(ErrorCode::NOT_FOUND, "not needed");
    }
#endif
    // LLVM also asks for such as may be absent: that is not for the library, which
    // reports what it does not find.
    if (!isSymbolInImage(Device, Image, Global.getName()))
      return fail(ErrorCode::NOT_FOUND, "an image has no global '%s'",
                  Global.getName().c_str());
#if LLVM_VERSION_MAJOR >= 22
    if (Global.getSize() == 0)
      if (Error Err = findSize(Image, Global))
        return Err;
#endif
    void *Address = nullptr;
    if (Error Err =
            check(Library.get_global(
                      static_cast<MPIDeviceImageTy &>(Image).Binary,
                      Global.getSize(), Global.getName().c_str(), &Address),
                  "finding a global"))
      return Err;
    Global.setPtr(Address);
    return Plugin::success();
  }

private:
#if LLVM_VERSION_MAJOR >= 22
  /// True if the image has functions of `declare target indirect`: a variable for
  /// each, named like a kernel, has its address.
  bool hasIndirectFunctions(DeviceImageTy &Image) {
    auto Object = getELFObjectFile(Image);
    if (!Object) {
      consumeError(Object.takeError());
      return false;
    }
    auto *ELF = cast<object::ELFObjectFileBase>(Object->get());
    return any_of(ELF->getDynamicSymbolIterators(), [](const auto &Symbol) {
      Expected<StringRef> Name = Symbol.getName();
      if (!Name) {
        consumeError(Name.takeError());
        return false;
      }
      return Symbol.getELFType() == ELF::STT_OBJECT &&
             Name->starts_with("__omp_offloading_");
    });
  }

  /// Sets a global's size to what the image says.
  Error findSize(DeviceImageTy &Image, GlobalTy &Global) {
    auto Object = getELFObjectFile(Image);
    if (!Object)
      return Object.takeError();
    auto Symbol = utils::elf::getSymbol(**Object, Global.getName());
    if (!Symbol)
      return Symbol.takeError();
    if (*Symbol)
      Global.setSize((*Symbol)->getSize());
    return Plugin::success();
  }
#endif
};

struct MPIPluginTy : public GenericPluginTy {
  MPIPluginTy() : GenericPluginTy(getArch()) {}

  Expected<int32_t> initImpl() override {
    if (numberOfDevices() == 0)
      return 0;
    // They are needed until deinitImpl.
    Library.register_lib(nullptr);
    // LLVM's memory manager hides from the plugin which memory the program itself may
    // use, as `requires unified_shared_memory` has it of omp_target_alloc, and it gains
    // nothing: an allocation takes no message. LLVM looks for this when it starts the
    // first device; the program may want something else.
    setenv("LIBOMPTARGET_MEMORY_MANAGER_THRESHOLD", "0", /*overwrite=*/0);
    return numberOfDevices();
  }
  Error deinitImpl() override {
    if (numberOfDevices() == 0)
      return Plugin::success();
    return check(Library.unregister_lib(nullptr), "ending");
  }

  GenericDeviceTy *createDevice(GenericPluginTy &Plugin, int32_t DeviceId,
                                int32_t NumDevices) override {
    return new MPIDeviceTy(Plugin, DeviceId, NumDevices);
  }
  GenericGlobalHandlerTy *createGlobalHandler() override {
    return new MPIGlobalHandlerTy();
  }

  uint16_t getMagicElfBits() const override {
    return numberOfDevices() > 0 ? Library.mpi_machine()
                                 : utils::elf::getTargetMachine();
  }
  Triple::ArchType getTripleArch() const override { return getArch(); }
  const char *getName() const override { return GETNAME(TARGET_NAME); }

  Expected<bool> isELFCompatible(uint32_t DeviceId,
                                 StringRef Image) const override {
    mpi::__tgt_device_image Whole = asMPI(Image.data(), Image.size());
    return Library.mpi_is_for_device(DeviceId, &Whole) != 0;
  }

private:
  /// Devices run images of the machine that libomptarget was built for.
  static Triple::ArchType getArch() {
    return Triple(sys::getProcessTriple()).getArch();
  }
};

/// Stands for LLVM's host plugin where that shall have no devices.
struct NoHostPluginTy final : public MPIPluginTy {
  Expected<int32_t> initImpl() override { return 0; }
  Error deinitImpl() override { return Plugin::success(); }
};

} // namespace

extern "C" {
GenericPluginTy *createPlugin_mpi() { return new MPIPluginTy(); }

#ifdef OMPTARGET_MPI_WITH_HOST
/// The linker calls these for createPlugin_host. LLVM lists the devices of all plugins,
/// so that a program that uses each of its devices would get four of the host with those
/// that it was started with. The host plugin is for where there are no others, as before
/// LLVM 19, unless it is asked for.
GenericPluginTy *__real_createPlugin_host();
GenericPluginTy *__wrap_createPlugin_host() {
  const char *Wanted = std::getenv("OMPTARGET_MPI_HOST_DEVICES");
  if ((Wanted && StringRef(Wanted).trim() == "1") || numberOfDevices() == 0)
    return __real_createPlugin_host();
  return new NoHostPluginTy();
}
#endif
}
