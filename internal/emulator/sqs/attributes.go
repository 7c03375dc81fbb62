package sqs

import (
	"crypto/md5"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"agentworker/internal/emulator/sqs/engine"
)

// attributeValue is a message attribute on the wire.
type attributeValue struct {
	DataType    string
	StringValue *string `json:",omitempty"`
	BinaryValue []byte  `json:",omitempty"`
	// The list values are reserved; SQS refuses them.
	StringListValues []string `json:",omitempty"`
	BinaryListValues [][]byte `json:",omitempty"`
}

const maximumAttributes = 10

var attributeName = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)

// attributesOf checks the attributes of a message.
// Source: Amazon SQS Developer Guide, "Amazon SQS message metadata"; API Reference, MessageAttributeValue.
func attributesOf(in map[string]attributeValue) (map[string]engine.Attribute, *engine.Error) {
	if len(in) > maximumAttributes {
		return nil, refuse(engine.InvalidParameterValue,
			"Number of message attributes [%d] exceeds the allowed maximum [%d].", len(in), maximumAttributes)
	}
	out := make(map[string]engine.Attribute, len(in))
	for _, name := range slices.Sorted(maps.Keys(in)) {
		if err := checkAttributeName(name); err != nil {
			return nil, err
		}
		value, err := attributeOf(name, in[name])
		if err != nil {
			return nil, err
		}
		out[name] = value
	}
	return out, nil
}

func checkAttributeName(name string) *engine.Error {
	lower := strings.ToLower(name)
	switch {
	case len(name) > 256:
		return refuse(engine.InvalidParameterValue, "Message (user) attribute names must be at most 256 characters long.")
	case !attributeName.MatchString(name):
		return refuse(engine.InvalidParameterValue, "Message (user) attribute name '%s' can only contain letters, "+
			"digits, underscores, hyphens and periods.", name)
	case strings.HasPrefix(lower, "aws.") || strings.HasPrefix(lower, "amazon."):
		return refuse(engine.InvalidParameterValue, "Message (user) attribute name '%s' begins with AWS. or Amazon., "+
			"which are reserved.", name)
	case name[0] == '.' || name[len(name)-1] == '.' || strings.Contains(name, ".."):
		return refuse(engine.InvalidParameterValue, "Message (user) attribute name '%s' must not begin or end with a period "+
			"or have periods in succession.", name)
	}
	return nil
}

func attributeOf(name string, in attributeValue) (engine.Attribute, *engine.Error) {
	var none engine.Attribute
	bad := func(format string, args ...any) (engine.Attribute, *engine.Error) {
		return none, refuse(engine.InvalidParameterValue, "Message (user) attribute '"+name+"' "+format, args...)
	}
	kind, _, _ := strings.Cut(in.DataType, ".")
	switch {
	case in.DataType == "":
		return bad("must contain a non-empty attribute type.")
	case len(in.DataType) > 256:
		return bad("has a type that is longer than 256 characters.")
	case len(in.StringListValues) > 0 || len(in.BinaryListValues) > 0:
		return none, refuse(engine.UnsupportedOperation, "Message attribute list values are not supported.")
	}
	switch kind {
	case "Binary":
		if len(in.BinaryValue) == 0 {
			return bad("must contain a non-empty value of type 'Binary'.")
		}
		return engine.Attribute{Type: in.DataType, Binary: in.BinaryValue}, nil
	case "String", "Number":
		if in.StringValue == nil || *in.StringValue == "" {
			return bad("must contain a non-empty value of type 'String'.")
		}
		if kind == "Number" && !isNumber(*in.StringValue) {
			return bad("is not a number that SQS can hold: at most 38 digits, from 1E-128 to 1E+126.")
		}
		if r, ok := illegal(*in.StringValue); ok {
			return none, refuse(invalidContents, "Invalid binary character '#x%X' was found in the message attribute '%s' value.", r, name)
		}
		return engine.Attribute{Type: in.DataType, String: *in.StringValue}, nil
	}
	return bad("has the type '%s', which does not begin with String, Number or Binary.", in.DataType)
}

var decimal = regexp.MustCompile(`^[+-]?([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,4}))?$`)

// isNumber: up to 38 digits of precision, magnitude 10^-128 to 10^+126.
func isNumber(text string) bool {
	parts := decimal.FindStringSubmatch(strings.TrimSpace(text))
	if parts == nil || parts[1] == "" && parts[2] == "" {
		return false
	}
	digits := strings.TrimLeft(parts[1]+parts[2], "0")
	if digits == "" {
		return true // zero
	}
	exponent := 0
	negative := strings.HasPrefix(parts[3], "-")
	for _, d := range strings.TrimLeft(parts[3], "+-") {
		exponent = exponent*10 + int(d-'0')
	}
	if negative {
		exponent = -exponent
	}
	// Power of ten of the first digit that is not zero.
	magnitude := len(digits) - 1 - len(parts[2]) + exponent
	return len(strings.TrimRight(digits, "0")) <= 38 && magnitude >= -128 && magnitude <= 126
}

// illegal returns the first character that a message must not contain.
// Source: Amazon SQS API Reference, SendMessage.
func illegal(text string) (rune, bool) {
	for _, r := range text {
		switch {
		case r == 0x9, r == 0xA, r == 0xD, r >= 0x20 && r <= 0xD7FF, r >= 0xE000 && r <= 0xFFFD,
			r >= 0x10000 && r <= utf8.MaxRune:
		default:
			return r, true
		}
	}
	return 0, false
}

// fifoID checks a message group or deduplication id: 1 to 128 letters, digits and punctuation.
func fifoID(value *string, parameter string) (string, *engine.Error) {
	if value == nil {
		return "", nil
	}
	ok := len(*value) >= 1 && len(*value) <= 128
	for _, r := range *value {
		ok = ok && r > ' ' && r < 0x7F
	}
	if !ok {
		return "", invalidValue(*value, parameter,
			parameter+" can only include alphanumeric and punctuation characters. 1 to 128 in length.")
	}
	return *value, nil
}

func md5Of(text string) string {
	sum := md5.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// md5OfAttributes is the checksum over names, types and values in the order of the names; "" for none.
// Source: Amazon SQS Developer Guide, "Calculating the MD5 message digest for message attributes".
func md5OfAttributes(attributes map[string]engine.Attribute) string {
	if len(attributes) == 0 {
		return ""
	}
	var buf []byte
	add := func(part string) {
		buf = binary.BigEndian.AppendUint32(buf, uint32(len(part))) //nolint:gosec // at most 1 MiB
		buf = append(buf, part...)
	}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		a := attributes[name]
		add(name)
		add(a.Type)
		if strings.HasPrefix(a.Type, "Binary") {
			buf = append(buf, 2)
			add(string(a.Binary))
		} else {
			buf = append(buf, 1)
			add(a.String)
		}
	}
	sum := md5.Sum(buf)
	return hex.EncodeToString(sum[:])
}
