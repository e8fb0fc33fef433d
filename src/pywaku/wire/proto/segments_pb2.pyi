from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class SegmentMessageProto(_message.Message):
    __slots__ = ("entire_message_hash", "data_segment_index", "data_segment_count", "payload", "parity_segment_index", "parity_segment_count", "is_parity")
    ENTIRE_MESSAGE_HASH_FIELD_NUMBER: _ClassVar[int]
    DATA_SEGMENT_INDEX_FIELD_NUMBER: _ClassVar[int]
    DATA_SEGMENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    PARITY_SEGMENT_INDEX_FIELD_NUMBER: _ClassVar[int]
    PARITY_SEGMENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    IS_PARITY_FIELD_NUMBER: _ClassVar[int]
    entire_message_hash: bytes
    data_segment_index: int
    data_segment_count: int
    payload: bytes
    parity_segment_index: int
    parity_segment_count: int
    is_parity: bool
    def __init__(self, entire_message_hash: _Optional[bytes] = ..., data_segment_index: _Optional[int] = ..., data_segment_count: _Optional[int] = ..., payload: _Optional[bytes] = ..., parity_segment_index: _Optional[int] = ..., parity_segment_count: _Optional[int] = ..., is_parity: _Optional[bool] = ...) -> None: ...
